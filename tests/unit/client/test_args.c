/* test_args.c: the command line. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

/* A line is split at blanks, as a shell does. */
struct line {
	char *words[80];
	int len;
	char text[2048];
};

static bool parse(struct args *a, struct line *l, const char *text, struct errmsg *em)
{
	l->len = 1;
	l->words[0] = (char *)(uintptr_t)"holdfastctl";
	snprintf(l->text, sizeof(l->text), "%s", text);
	for (char *w = strtok(l->text, " "); w; w = strtok(NULL, " "))
		l->words[l->len++] = strcmp(w, "''") == 0 ? (char *)(uintptr_t)"" : w;
	l->words[l->len] = NULL;
	args_init(a, NULL);
	em->text[0] = '\0';
	return args_parse(a, l->len, l->words, em);
}

START_TEST(args__lock_with_everything)
{
	struct args a;
	struct line l;
	struct errmsg em;
	ck_assert_msg(parse(&a, &l, "lock --endpoints a:1,b:2 db --shared --wait 1m -o json --ttl=30s --timeout 500ms -- sh -c --try -- x", &em), "%s", em.text);
	ck_assert_str_eq(a.command->name, "lock");
	ck_assert_int_eq(a.words_len, 1);
	ck_assert_str_eq(a.words[0], "db");
	ck_assert(a.shared && !a.try_only && args_given(&a, FLAG_WAIT) && !args_given(&a, FLAG_TRY));
	ck_assert_uint_eq(a.wait_ms, 60000);
	ck_assert_int_eq(a.ttl_s, 30);
	ck_assert_uint_eq(a.timeout_ms, 500);
	ck_assert_int_eq(a.output, OUTPUT_JSON);
	ck_assert_str_eq(a.run[0], "sh");
	ck_assert_str_eq(a.run[2], "--try");
	ck_assert_str_eq(a.run[3], "--");
	ck_assert_str_eq(a.run[4], "x");
	ck_assert_ptr_null(a.run[5]);
}
END_TEST

START_TEST(args__defaults)
{
	struct args a;
	struct line l;
	struct errmsg em;
	ck_assert(parse(&a, &l, "lock db", &em));
	ck_assert(a.ttl_s == 12 && a.timeout_ms == 10000 && a.output == OUTPUT_SIMPLE && !a.run && !args_given(&a, FLAG_WAIT));
	ck_assert_str_eq(a.endpoints, "127.0.0.1:2379");
	args_init(&a, "x:1");
	ck_assert_str_eq(a.endpoints, "x:1");
	args_init(&a, "");
	ck_assert_str_eq(a.endpoints, "127.0.0.1:2379");
}
END_TEST

START_TEST(args__two_words_and_flags_before_them)
{
	struct args a;
	struct line l;
	struct errmsg em;
	ck_assert(parse(&a, &l, "--hex lease --timeout 1s ttl 1f --keys", &em));
	ck_assert_str_eq(a.command->name, "lease ttl");
	ck_assert(a.words_len == 1 && a.hex && a.keys);
	ck_assert_str_eq(a.words[0], "1f");
}
END_TEST

START_TEST(args__after_two_dashes_nothing_is_a_flag)
{
	struct args a;
	struct line l;
	struct errmsg em;
	ck_assert(parse(&a, &l, "put k -- -5", &em));
	ck_assert(a.words_len == 2 && !a.run);
	ck_assert_str_eq(a.words[1], "-5");
	ck_assert(parse(&a, &l, "put k -", &em) && a.words_len == 2);
	ck_assert(parse(&a, &l, "get -- --prefix", &em) && !a.prefix && a.words_len == 1);
}
END_TEST

START_TEST(args__help_needs_nothing_else)
{
	struct args a;
	struct line l;
	struct errmsg em;
	ck_assert(parse(&a, &l, "--help", &em) && a.help && !a.command);
	ck_assert(parse(&a, &l, "lock -h", &em) && a.help && strcmp(a.command->name, "lock") == 0);
	ck_assert(parse(&a, &l, "lease --help", &em) && a.help && !a.command && a.words_len == 1);
	ck_assert(!parse(&a, &l, "frob --help", &em));
}
END_TEST

static const struct {
	const char *line, *why;
} wrong[] = {
	{ "", "no command given" },
	{ "frob", "no command 'frob'" },
	{ "lease", "'lease' needs to be told what" },
	{ "lease frob", "no command 'lease frob'" },
	{ "lock", "too few arguments; usage: holdfastctl lock NAME [-- COMMAND...]" },
	{ "lock a b", "too many arguments" },
	{ "lock a --", "no command after '--'" },
	{ "lock a --frob", "no flag '--frob'" },
	{ "lock a --prefix", "lock has no flag --prefix" },
	{ "lock a --try=1", "--try takes no value" },
	{ "lock a --wait", "--wait needs a value" },
	{ "lock a --wait 5", "--wait: '5' is not a duration" },
	{ "lock a --ttl 0", "--ttl:" },
	{ "get k --timeout 0", "--timeout: it must be more" },
	{ "get k --limit -1", "--limit: -1 is not within" },
	{ "get k --limit 1x", "--limit: '1x' is not a number" },
	{ "get k -o yaml", "--output: 'yaml' is none of: simple table json fields" },
	{ "get k --sort ke", "--sort: 'ke' is none of" },
	{ "put k v --lease xyz", "--lease: 'xyz' is not a lease ID" },
	{ "put k -5", "no flag '-5'" },
	{ "txn a", "too many arguments" },
	{ "get a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o p", "more than 64" },
};

START_TEST(args__what_is_wrong_is_said)
{
	struct args a;
	struct line l;
	struct errmsg em;
	ck_assert_msg(!parse(&a, &l, wrong[_i].line, &em), "'%s' was taken", wrong[_i].line);
	ck_assert_msg(strstr(em.text, wrong[_i].why), "'%s' says '%s'", wrong[_i].line, em.text);
}
END_TEST

START_TEST(args__tables_are_whole)
{
	for (int i = 0; i < commands_len; i++) {
		const struct command *c = &commands[i];
		ck_assert_msg(c->name && c->usage && c->summary && c->text && c->examples && c->function && c->min <= c->max, "%s", c->name);
		ck_assert_msg(strstr(c->examples, "holdfastctl") && !strchr(c->summary, '\n'), "%s", c->name);
		for (const char *at = c->text; *at; at += strcspn(at, "\n") + (at[strcspn(at, "\n")] == '\n'))
			ck_assert_msg(strcspn(at, "\n") <= 80, "%s: a line of its help is too long", c->name);
	}
	for (int id = 0; id < FLAG_COUNT; id++) {
		const struct flag *f = flag_by_id((enum flag_id)id);
		bool used = false;
		ck_assert(f->name && f->help);
		for (int i = 0; i < commands_len; i++)
			used |= command_has_flag(&commands[i], (enum flag_id)id);
		ck_assert_msg(used, "nobody has --%s", f->name);
	}
}
END_TEST

static const struct {
	const char *list, *want; /* want NULL: refused */
} endpoints[] = {
	{ "a:1", "a:1" }, { "a:1,b:2", "a:1 b:2" }, { "a:1,a:1,", "a:1" }, { "http://a:1/,b:2", "a:1 b:2" }, { "127.0.0.1:2379", "127.0.0.1:2379" },
	{ "[::1]:2379", "[::1]:2379" }, { "", NULL }, { ",", NULL }, { "a", NULL }, { "a:", NULL }, { ":1", NULL }, { "a:x", NULL }, { "a:0", NULL }, { "a:65536", NULL },
	{ "::1:2379", NULL }, { "[::1]", NULL }, { "[]:1", NULL }, { "https://a:1", "https://a:1" }, { "https://", NULL }, { "https://a", NULL }, { "https://a:1,a:1", "https://a:1 a:1" }, { "a:1/x", NULL }, { "a b:1", NULL }, { "a:1,b", NULL },
};

START_TEST(args__endpoints)
{
	char *list[ENDPOINTS_MAX], all[200] = "";
	struct errmsg em;
	int len = 0;
	bool ok = args_endpoints(endpoints[_i].list, false, list, &len, &em);
	ck_assert_msg(ok == (endpoints[_i].want != NULL), "'%s'", endpoints[_i].list);
	for (int i = 0; ok && i < len; i++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? " " : "", list[i]);
	if (ok) {
		ck_assert_str_eq(all, endpoints[_i].want);
		endpoints_free(list, len);
	}
}
END_TEST

START_TEST(args__endpoints_without_a_scheme_are_as_the_flags_say)
{
	char *list[ENDPOINTS_MAX];
	struct errmsg em;
	int len = 0;
	ck_assert(args_endpoints("a:1,http://b:2/,https://c:3,https://a:1/", true, list, &len, &em));
	ck_assert_int_eq(len, 3);
	ck_assert_str_eq(list[0], "https://a:1");
	ck_assert_str_eq(list[1], "b:2");
	ck_assert_str_eq(list[2], "https://c:3");
	endpoints_free(list, len);
}
END_TEST

START_TEST(args__endpoints_are_bounded)
{
	char *list[ENDPOINTS_MAX], text[1000] = "";
	struct errmsg em;
	int len;
	for (int i = 0; i < ENDPOINTS_MAX + 1; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "h:%d,", i + 1);
	ck_assert(!args_endpoints(text, false, list, &len, &em));
	ck_assert(strstr(em.text, "more than 32"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("args");
	TCase *t = tcase_create("args");
	SRunner *r = srunner_create(s);
	int failed;
	tcase_add_test(t, args__lock_with_everything);
	tcase_add_test(t, args__defaults);
	tcase_add_test(t, args__two_words_and_flags_before_them);
	tcase_add_test(t, args__after_two_dashes_nothing_is_a_flag);
	tcase_add_test(t, args__help_needs_nothing_else);
	tcase_add_loop_test(t, args__what_is_wrong_is_said, 0, LEN(wrong));
	tcase_add_test(t, args__tables_are_whole);
	tcase_add_loop_test(t, args__endpoints, 0, LEN(endpoints));
	tcase_add_test(t, args__endpoints_without_a_scheme_are_as_the_flags_say);
	tcase_add_test(t, args__endpoints_are_bounded);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
