/* help.c: see help.h. */
#include "help.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ctl.h"

const char help_exit_codes[] =
	"0    done\n"
	"1    refused by the cell, or it went wrong otherwise\n"
	"2    wrong usage\n"
	"3    no replica answered in time; a write may have been done if the message says so\n"
	"123  lock, elect: the lease or the hold was lost before it was released; locks verify: there is no such hold\n"
	"124  lock, elect: somebody else holds it, and --try or --wait did not allow to wait longer\n"
	"125  lock, elect with COMMAND: failed before COMMAND was started\n"
	"126  COMMAND cannot be run\n"
	"127  COMMAND was not found\n"
	"128+N  ended by signal N; of lock and elect: COMMAND was\n"
	"else   lock, elect with COMMAND: COMMAND's own\n";

static const char intro[] =
	"Locks, elections, keys, leases and members of a Holdfast cell, or of any server\n"
	"that speaks etcd's API.";

static const char notes[] =
	"Durations are written 500ms, 10s, 1m, 1h30m. IDs of leases and members are\n"
	"hexadecimal, but for JSON, where they are decimal as in the JSON gateway. An\n"
	"argument that begins with a dash goes after \"--\".";

static void print_flag(const struct flag *f)
{
	char left[64], letter[6] = "";
	if (f->letter)
		snprintf(letter, sizeof(letter), "-%c, ", f->letter);
	snprintf(left, sizeof(left), "%s--%s%s%s", letter, f->name, f->value ? " " : "", f->value ? f->value : "");
	printf("  %-26s  %s\n", left, f->help);
}

static bool in_group(const struct command *cmd, const char *group)
{
	size_t n = group ? strlen(group) : 0;
	return !group || (strncmp(cmd->name, group, n) == 0 && cmd->name[n] == ' ');
}

static void print_indented(const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");
		printf("%s%.*s\n", n ? "  " : "", (int)n, text);
		text += n + (text[n] == '\n');
	}
}

void help_all(const char *group)
{
	printf("usage: holdfastctl %s%sCOMMAND [ARGUMENTS] [FLAGS]\n\n", group ? group : "", group ? " " : "");
	if (!group)
		printf("%s\n\n", intro);
	printf("commands:\n");
	for (int i = 0; i < commands_len; i++) {
		if (in_group(&commands[i], group))
			printf("  %-22s  %s\n", commands[i].name, commands[i].summary);
	}
	printf("\nflags of every command:\n");
	for (int id = 0; id <= FLAG_HELP; id++)
		print_flag(flag_by_id((enum flag_id)id));
	if (!group) {
		printf("\n%s\n\nexit codes:\n", notes);
		print_indented(help_exit_codes);
	}
	printf("\nexamples:\n");
	for (int i = 0; i < commands_len; i++) {
		const char *first = commands[i].examples;
		if (*first == '#')
			first = strchr(first, '\n') + 1;
		if (in_group(&commands[i], group))
			printf("  %.*s\n", (int)strcspn(first, "\n"), first);
	}
	printf("\n'holdfastctl help COMMAND' explains a command.\n");
}

void help_command(const struct command *cmd)
{
	printf("usage: holdfastctl %s%s%s [FLAGS]%s\n\n%s\n\n", cmd->name, *cmd->usage ? " " : "", cmd->usage, cmd->runs ? " [-- COMMAND...]" : "", cmd->text);
	if (cmd->flags) {
		printf("flags:\n");
		for (const enum flag_id *f = cmd->flags; *f != FLAG_COUNT; f++)
			print_flag(flag_by_id(*f));
		printf("\n");
	}
	printf("flags of every command:\n");
	for (int id = 0; id <= FLAG_HELP; id++)
		print_flag(flag_by_id((enum flag_id)id));
	printf("\nexamples:\n");
	print_indented(cmd->examples);
}

int command_help(struct ctl *c)
{
	const struct command *cmd;
	int used;
	bool group;
	if (c->args.words_len == 0) {
		help_all(NULL);
		return EXIT_DONE;
	}
	cmd = command_find(c->args.words, c->args.words_len, &used, &group);
	if (cmd) {
		help_command(cmd);
	} else if (group && c->args.words_len == 1) {
		help_all(c->args.words[0]);
	} else {
		ctl_error("no command '%s%s%s'; see 'holdfastctl help'", c->args.words[0], c->args.words_len > 1 ? " " : "",
			  c->args.words_len > 1 ? c->args.words[1] : "");
		return EXIT_USAGE;
	}
	return EXIT_DONE;
}

/* ---- the man page ---- */

/* Roff takes a backslash, a dash, and a dot or an apostrophe at the beginning of a line for its own. */
static void roff(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		if ((c == '.' || c == '\'') && (i == 0 || text[i - 1] == '\n'))
			printf("\\&");
		if (c == '\\')
			printf("\\e");
		else if (c == '-')
			printf("\\-");
		else
			putchar(c);
	}
}

static void roff_str(const char *text)
{
	roff(text, strlen(text));
}

/* Paragraphs between empty lines; one that begins with blanks is kept as it is. */
static void roff_text(const char *text)
{
	while (*text) {
		const char *end = strstr(text, "\n\n");
		size_t n = end ? (size_t)(end - text) : strlen(text);
		bool as_is = *text == ' ';
		printf(as_is ? ".PP\n.nf\n" : ".PP\n");
		roff(text, n);
		printf(as_is ? "\n.fi\n" : "\n");
		text += n + (end ? 2 : 0);
	}
}

static void roff_flag(const struct flag *f)
{
	printf(".TP\n");
	if (f->letter)
		printf("\\fB\\-%c\\fR, ", f->letter);
	printf("\\fB\\-\\-");
	roff_str(f->name);
	printf("\\fR");
	if (f->value)
		printf(" \\fI%s\\fR", f->value);
	printf("\n");
	roff_str(f->help);
	printf("\n");
}

static void roff_command(const struct command *cmd)
{
	printf(".SS \"");
	roff_str(cmd->name);
	printf("%s%s%s\"\n", *cmd->usage ? " " : "", cmd->usage, cmd->runs ? " [\\-\\- COMMAND...]" : "");
	roff_text(cmd->text);
	for (const enum flag_id *f = cmd->flags; f && *f != FLAG_COUNT; f++)
		roff_flag(flag_by_id(*f));
	printf(".PP\n.RS 4\n.nf\n");
	roff_str(cmd->examples);
	printf("\n.fi\n.RE\n");
}

static void roff_exit_codes(void)
{
	for (const char *at = help_exit_codes; *at;) {
		size_t n = strcspn(at, "\n"), code = strcspn(at, " ");
		size_t gap = code + strspn(at + code, " ");
		printf(".TP\n\\fB%.*s\\fR\n", (int)code, at);
		roff(at + gap, n - gap);
		printf("\n");
		at += n + 1;
	}
}

void help_man(void)
{
	printf(".\\\" Made by 'holdfastctl help --man'.\n"
	       ".TH HOLDFASTCTL 1\n.SH NAME\nholdfastctl \\- locks, elections, keys and leases of a Holdfast cell\n"
	       ".SH SYNOPSIS\n\\fBholdfastctl\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR] [\\fIFLAGS\\fR]\n.SH DESCRIPTION\n");
	roff_str(intro);
	printf("\n.PP\n");
	roff_str(notes);
	printf("\n.SH FLAGS OF EVERY COMMAND\n");
	for (int id = 0; id <= FLAG_HELP; id++)
		roff_flag(flag_by_id((enum flag_id)id));
	printf(".SH COMMANDS\n");
	for (int i = 0; i < commands_len; i++)
		roff_command(&commands[i]);
	printf(".SH OUTPUT\n"
	       ".TP\n\\fBsimple\\fR\nFor people and pipes. Keys and values come out as they are, byte for byte.\n"
	       ".TP\n\\fBtable\\fR\nRows and columns with a heading.\n"
	       ".TP\n\\fBjson\\fR\nOne line a message, with the names of the API. Bytes are text, or {\"hex\":\"00ff\"} when they are not UTF\\-8; 64\\-bit numbers are strings.\n"
	       ".TP\n\\fBfields\\fR\nOne line a field, as in kvs.0.key: \"a\".\n"
	       ".PP\nErrors are one line each on standard error.\n"
	       ".SH EXIT CODES\n");
	roff_exit_codes();
	printf(".SH ENVIRONMENT\n.TP\n\\fBHOLDFAST_ENDPOINTS\\fR\nThe endpoints, when \\-\\-endpoints is not given.\n"
	       ".TP\n\\fBHOLDFAST_CACERT\\fR, \\fBHOLDFAST_CERT\\fR, \\fBHOLDFAST_KEY\\fR\nFiles for TLS, when \\-\\-cacert, \\-\\-cert and \\-\\-key are not given.\n"
	       ".TP\n\\fBHOLDFAST_LOCK\\fR, \\fBHOLDFAST_ELECTION\\fR, \\fBHOLDFAST_TOKEN\\fR, \\fBHOLDFAST_LEASE\\fR\nSet for the COMMAND of lock and elect.\n");
}

/* ---- completion ---- */

static void words_of_flags(const struct command *cmd)
{
	for (int id = 0; id < FLAG_COUNT; id++) {
		if (cmd ? command_has_flag(cmd, (enum flag_id)id) : id <= FLAG_HELP)
			printf("--%s\n", flag_by_id((enum flag_id)id)->name);
	}
}

static const struct flag *flag_of_word(const char *word)
{
	for (int id = 0; id < FLAG_COUNT; id++) {
		const struct flag *f = flag_by_id((enum flag_id)id);
		if (f->value && ((strncmp(word, "--", 2) == 0 && strcmp(word + 2, f->name) == 0) || (f->letter && word[0] == '-' && word[1] == f->letter && !word[2])))
			return f;
	}
	return NULL;
}

/* The words that are neither flags nor their values. */
static int plain_words(const char *const *words, int len, const char *ret[ARGS_MAX])
{
	int n = 0;
	for (int i = 0; i < len && n < ARGS_MAX; i++) {
		if (flag_of_word(words[i]))
			i++;
		else if (words[i][0] != '-')
			ret[n++] = words[i];
	}
	return n;
}

static void words_of_commands(const char *group)
{
	const char *last = "";
	size_t last_len = 0;
	for (int i = 0; i < commands_len; i++) {
		const char *name = commands[i].name;
		size_t n = strcspn(name, " ");
		if (group) {
			if (in_group(&commands[i], group))
				printf("%s\n", name + strlen(group) + 1);
		} else if (n != last_len || memcmp(name, last, n) != 0) {
			printf("%.*s\n", (int)n, name);
			last = name;
			last_len = n;
		}
	}
}

void help_words(const char *const *words, int len)
{
	const char *plain[ARGS_MAX];
	const struct flag *f = len ? flag_of_word(words[len - 1]) : NULL;
	const struct command *cmd;
	int n = plain_words(words, len, plain), used, skip;
	bool group;
	if (f) {
		for (const char *at = f->choices; at && *at;) {
			size_t k = strcspn(at, " ");
			printf("%.*s\n", (int)k, at);
			at += k + (at[k] == ' ');
		}
		return;
	}
	skip = n > 0 && strcmp(plain[0], "help") == 0;
	cmd = command_find(plain + skip, n - skip, &used, &group);
	if (!cmd && n - skip == 0)
		words_of_commands(NULL);
	else if (!cmd && group && n - skip == 1)
		words_of_commands(plain[skip]);
	words_of_flags(cmd);
}
