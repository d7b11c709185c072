/* Members: the numbers that etcd gives them, and what a publish may change.
 *
 * The IDs below were read from etcd 3.4.23 itself, started with --initial-cluster-token, --initial-cluster and
 * --initial-advertise-peer-urls as given and asked with `etcdctl member list -w json` (and its log's "added member" lines). The
 * first one by hand: printf %s http://127.0.0.1:52380etcd-cluster | sha1sum. */
#include <check.h>
#include <stdio.h>

#include "base/mem.h"
#include "core/member/member.h"
#include "core/snapshot/snapshot.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static const struct {
	const char *what;
	const char *urls[2];
	size_t len;
	const char *token;
	uint64_t want;
} id_cases[] = {
	{ "one address", { "http://127.0.0.1:52380" }, 1, "etcd-cluster", 0x866e9665bbc7041f },
	{ "two are sorted first", { "http://127.0.0.1:52382", "http://127.0.0.1:52381" }, 2, "some-token", 0x6c9569c71ecaa7ca },
	{ "a leading zero", { "http://127.0.0.1:52384" }, 1, "tok3", 0x013daa139700effe },
	{ "one of three", { "http://127.0.0.1:52383" }, 1, "tok3", 0x1ae253207a95fc89 },
	{ "another of three", { "http://127.0.0.1:52385" }, 1, "tok3", 0x44a445cdd46ab653 },
};

START_TEST(member__ids_are_those_of_etcd)
{
	ck_assert_msg(member_derive_id(id_cases[_i].urls, id_cases[_i].len, id_cases[_i].token) == id_cases[_i].want, "%s",
		      id_cases[_i].what);
}
END_TEST

START_TEST(member__cell_ids_are_those_of_etcd)
{
	const member_id one[] = { 0x866e9665bbc7041f };
	const member_id two_urls[] = { 0x6c9569c71ecaa7ca };
	const member_id three[] = { 0x44a445cdd46ab653, 0x013daa139700effe, 0x1ae253207a95fc89 };

	ck_assert_uint_eq(member_derive_cell_id(one, 1), 0x412ca885fa6038db);
	ck_assert_uint_eq(member_derive_cell_id(two_urls, 1), 0x4a0d9af2c2bf68ee);
	ck_assert_uint_eq(member_derive_cell_id(three, 3), 0xdb17865ccf21f6ec); /* in whatever order */
}
END_TEST

static const char *const urls[] = { "http://127.0.0.1:52382", "http://127.0.0.1:52381" };
#define ID UINT64_C(0x6c9569c71ecaa7ca)

static void set_up(struct state *st)
{
	state_init(st);
	member_add_initial(st, &(struct member_spec){ .name = "a", .peer_urls = urls, .peer_urls_len = LEN(urls) }, "some-token");
}

START_TEST(member__initial_members_are_equal_everywhere)
{
	static const char *const other[] = { "http://127.0.0.1:52383" };
	struct member_spec a = { .name = "a", .peer_urls = urls, .peer_urls_len = LEN(urls) };
	struct member_spec b = { .peer_urls = other, .peer_urls_len = 1 };
	struct state one, two;

	state_init(&one);
	state_init(&two);
	member_add_initial(&one, &a, "t");
	member_add_initial(&one, &b, "t");
	member_add_initial(&two, &b, "t");
	member_add_initial(&two, &a, "t");
	ck_assert_uint_eq(one.members.len, 2);
	ck_assert_uint_eq(state_hash(&one), state_hash(&two));
	state_deinit(&one);
	state_deinit(&two);
}
END_TEST

START_TEST(member__is_found_with_its_addresses_sorted)
{
	const struct member_record *m;
	struct state st;

	set_up(&st);
	ck_assert_ptr_null(member_find(&st, ID + 1));
	m = member_find(&st, ID);
	ck_assert_ptr_nonnull(m);
	ck_assert_uint_eq(m->id, ID);
	ck_assert_str_eq(m->name, "a");
	ck_assert_uint_eq(m->peer_urls_len, 2);
	ck_assert_str_eq(m->peer_urls[0], "http://127.0.0.1:52381");
	ck_assert_str_eq(m->peer_urls[1], "http://127.0.0.1:52382");
	ck_assert_uint_eq(m->client_urls_len, 0);
	ck_assert_uint_eq(m->data_dir_id, 0);
	ck_assert(!m->learner);
	state_deinit(&st);
}
END_TEST

START_TEST(member__publish_binds_the_data_directory_for_good)
{
	static const char *const clients[] = { "http://127.0.0.1:2379" };
	const struct member_record *m;
	struct state st;
	uint64_t hash;

	set_up(&st);
	ck_assert_int_eq(member_publish(&st, ID + 1, "x", clients, 1, 7), ERR_MEMBER_NOT_FOUND);
	ck_assert_int_eq(member_publish(&st, ID, "b", clients, 1, 7), ERR_OK);
	tree_check(&st.members);
	hash = state_hash(&st);
	ck_assert_int_eq(member_publish(&st, ID, "c", clients, 1, 8), ERR_WRONG_MEMBER);
	ck_assert_int_eq(member_publish(&st, ID, "c", clients, 1, 0), ERR_WRONG_MEMBER);
	ck_assert_uint_eq(state_hash(&st), hash); /* a refusal changes nothing */
	m = member_find(&st, ID);
	ck_assert_str_eq(m->name, "b");
	ck_assert_uint_eq(m->data_dir_id, 7);
	ck_assert_str_eq(m->client_urls[0], "http://127.0.0.1:2379");
	ck_assert_int_eq(member_publish(&st, ID, m->name, (const char *const *)m->client_urls, 1, 7), ERR_OK);
	ck_assert_uint_eq(state_hash(&st), hash);
	ck_assert_int_eq(member_publish(&st, ID, "d", NULL, 0, 7), ERR_OK);
	ck_assert_uint_eq(member_find(&st, ID)->client_urls_len, 0);
	ck_assert_uint_eq(member_find(&st, ID)->peer_urls_len, 2);
	tree_check(&st.members);
	state_deinit(&st);
}
END_TEST

START_TEST(member__publish_does_not_show_in_an_open_view)
{
	struct state st, view;
	uint64_t hash;

	set_up(&st);
	view = state_view(&st);
	hash = state_hash(&view);
	ck_assert_int_eq(member_publish(&st, ID, "b", NULL, 0, 7), ERR_OK);
	ck_assert_uint_ne(state_hash(&st), hash);
	ck_assert_uint_eq(state_hash(&view), hash);
	ck_assert_str_eq(member_find(&view, ID)->name, "a");
	tree_check(&view.members);
	state_deinit(&st);
	state_deinit(&view);
}
END_TEST

START_TEST(member__publish_keeps_to_its_bounds)
{
	const char *many[MEMBER_URLS_MAX + 1];
	char name[MEMBER_NAME_MAX + 2], url[MEMBER_URL_BYTES_MAX + 2];
	const char *const long_url[] = { url };
	const char *const empty_url[] = { "" };
	struct state st;

	memset(name, 'n', sizeof(name));
	memset(url, 'u', sizeof(url));
	name[sizeof(name) - 1] = url[sizeof(url) - 1] = '\0';
	for (size_t i = 0; i < LEN(many); i++)
		many[i] = "http://127.0.0.1:2379";
	set_up(&st);
	ck_assert_int_eq(member_publish(&st, ID, name, NULL, 0, 7), ERR_MEMBER_BAD_URLS);
	ck_assert_int_eq(member_publish(&st, ID, "a", long_url, 1, 7), ERR_MEMBER_BAD_URLS);
	ck_assert_int_eq(member_publish(&st, ID, "a", empty_url, 1, 7), ERR_MEMBER_BAD_URLS);
	ck_assert_int_eq(member_publish(&st, ID, "a", many, LEN(many), 7), ERR_MEMBER_BAD_URLS);
	ck_assert_uint_eq(member_find(&st, ID)->data_dir_id, 0);
	name[sizeof(name) - 2] = url[sizeof(url) - 2] = '\0';
	ck_assert_int_eq(member_publish(&st, ID, name, long_url, 1, 7), ERR_OK);
	ck_assert_int_eq(member_publish(&st, ID, name, many, LEN(many) - 1, 7), ERR_OK);
	state_deinit(&st);
}
END_TEST

/* ---- the record on disk ---- */

static struct buf encoded(const struct state *st)
{
	struct buf b = { 0 };

	member_record_type.encode(&member_find(st, ID)->base, &b);
	return b;
}

START_TEST(member__record_survives_encode_and_decode)
{
	static const char *const clients[] = { "http://b:2379", "http://a:2379" };
	struct tree_record *r, *clone;
	struct buf b, again = { 0 };
	struct state st;

	set_up(&st);
	ck_assert_int_eq(member_publish(&st, ID, "b", clients, 2, 7), ERR_OK);
	b = encoded(&st);
	ck_assert_int_eq(member_record_type.decode(buf_view(&b), &r), ERR_OK);
	clone = member_record_type.clone(r);
	ck_assert_uint_eq(member_record_type.hash(r), member_record_type.hash(&member_find(&st, ID)->base));
	tree_record_unref(&member_record_type, r);
	member_record_type.encode(clone, &again);
	ck_assert(slice_eq(buf_view(&b), buf_view(&again)));
	tree_record_unref(&member_record_type, clone);
	buf_free(&again);
	buf_free(&b);
	state_deinit(&st);
}
END_TEST

static void check_not_another(struct slice bytes)
{
	struct tree_record *r;
	struct buf again = { 0 };

	if (member_record_type.decode(bytes, &r) != ERR_OK)
		return;
	member_record_type.encode(r, &again); /* it may be another member, but one that is written so */
	ck_assert(slice_eq(buf_view(&again), bytes));
	buf_free(&again);
	tree_record_unref(&member_record_type, r);
}

START_TEST(member__record_is_never_taken_for_another)
{
	struct tree_record *r;
	struct state st;
	struct buf b;

	set_up(&st);
	ck_assert_int_eq(member_publish(&st, ID, "b", urls, 2, 7), ERR_OK);
	b = encoded(&st);
	ck_assert_int_eq(member_record_type.decode(slice_of(b.ptr, 0), &r), ERR_CORRUPT);
	for (size_t i = 0; i < b.len; i++) {
		struct buf cut = buf_copy_of(slice_of(b.ptr, i)); /* its own block, so that a byte too far is seen */
		check_not_another(buf_view(&cut));
		buf_free(&cut);
		for (unsigned bit = 0; bit < 8; bit++) {
			b.ptr[i] ^= (uint8_t)(1u << bit);
			check_not_another(buf_view(&b));
			b.ptr[i] ^= (uint8_t)(1u << bit);
		}
	}
	buf_append(&b, "\x48\x01", 2); /* field 9: not known */
	ck_assert_int_eq(member_record_type.decode(buf_view(&b), &r), ERR_CORRUPT);
	buf_free(&b);
	state_deinit(&st);
}
END_TEST

/* ---- changes ---- */

#define KIND(name) MEMBER_CHANGE(name)
#define ADDRESS "http://10.0.0.9:2380"

static enum err change(struct state *st, uint32_t kind, member_id id, const char *url)
{
	const char *const list[] = { url };
	struct member_change ch = { .kind = kind, .id = id, .peer_urls = list, .peer_urls_len = url ? 1 : 0 };
	uint64_t before = state_hash(st);
	enum err e = member_change_apply(st, &ch, ++st->applied.index);

	if (e) {
		st->applied.index--;
		ck_assert_uint_eq(state_hash(st), before); /* a refusal changes nothing */
	}
	tree_check(&st->members);
	tree_check(&st->removed);
	return e;
}

START_TEST(change__voter_is_counted_once_it_has_joined)
{
	struct state st;

	set_up(&st);
	ck_assert_int_eq(change(&st, KIND(ADD_VOTER), 7, ADDRESS), ERR_OK);
	ck_assert(!member_counts(member_find(&st, 7)));
	ck_assert(!member_find(&st, 7)->learner);
	ck_assert_int_eq(change(&st, KIND(PROMOTE), 7, NULL), ERR_MEMBER_NOT_LEARNER);
	ck_assert_int_eq(change(&st, KIND(JOIN), 7, NULL), ERR_OK);
	ck_assert(member_counts(member_find(&st, 7)));
	ck_assert_int_eq(change(&st, KIND(JOIN), 7, NULL), ERR_MEMBER_NOT_LEARNER);
	state_deinit(&st);
}
END_TEST

START_TEST(change__learner_is_counted_once_it_is_promoted)
{
	struct state st;

	set_up(&st);
	ck_assert_int_eq(change(&st, KIND(ADD_LEARNER), 7, ADDRESS), ERR_OK);
	ck_assert(!member_counts(member_find(&st, 7)));
	ck_assert_int_eq(change(&st, KIND(ADD_LEARNER), 8, "http://10.0.0.8:2380"), ERR_TOO_MANY_LEARNERS);
	ck_assert_int_eq(change(&st, KIND(PROMOTE), ID, NULL), ERR_MEMBER_NOT_LEARNER);
	ck_assert_int_eq(change(&st, KIND(PROMOTE), 9, NULL), ERR_MEMBER_NOT_FOUND);
	ck_assert_int_eq(change(&st, KIND(PROMOTE), 7, NULL), ERR_OK);
	ck_assert(member_counts(member_find(&st, 7)));
	state_deinit(&st);
}
END_TEST

static void check_survives(const struct member_record *m)
{
	struct tree_record *r;
	struct buf b = { 0 };

	member_record_type.encode(&m->base, &b);
	ck_assert_int_eq(member_record_type.decode(buf_view(&b), &r), ERR_OK);
	ck_assert_uint_eq(member_record_type.hash(r), member_record_type.hash(&m->base));
	ck_assert(member_counts(CONTAINER_OF(r, struct member_record, base)) == member_counts(m));
	tree_record_unref(&member_record_type, r);
	buf_free(&b);
}

/* Of learner, joining and leaving one at most. */
static void refused_with_another(const struct member_record *m)
{
	for (int i = 0; i < 2; i++) {
		struct tree_record *both = member_record_type.clone(&m->base), *r;
		struct member_record *copy = CONTAINER_OF(both, struct member_record, base);
		struct buf b = { 0 };

		*(i ? &copy->joining : &copy->learner) = true;
		member_record_type.encode(both, &b);
		ck_assert_int_eq(member_record_type.decode(buf_view(&b), &r), ERR_CORRUPT);
		member_record_type.free(both);
		buf_free(&b);
	}
}

START_TEST(change__voter_that_leaves_is_counted_no_more_until_it_is_removed)
{
	struct state st;

	set_up(&st);
	ck_assert_int_eq(change(&st, KIND(ADD_LEARNER), 7, ADDRESS), ERR_OK);
	ck_assert_int_eq(change(&st, KIND(LEAVE), 7, NULL), ERR_MEMBER_NOT_LEARNER);
	ck_assert_int_eq(change(&st, KIND(LEAVE), 9, NULL), ERR_MEMBER_NOT_FOUND);
	check_survives(member_find(&st, 7));
	ck_assert_int_eq(change(&st, KIND(PROMOTE), 7, NULL), ERR_OK);
	ck_assert_int_eq(change(&st, KIND(LEAVE), 7, NULL), ERR_OK);
	ck_assert(!member_counts(member_find(&st, 7)));
	ck_assert(!member_find(&st, 7)->learner);
	check_survives(member_find(&st, 7));
	refused_with_another(member_find(&st, 7));
	ck_assert_int_eq(change(&st, KIND(LEAVE), 7, NULL), ERR_MEMBER_NOT_LEARNER);
	ck_assert_int_eq(change(&st, KIND(JOIN), 7, NULL), ERR_MEMBER_NOT_LEARNER);
	ck_assert_int_eq(change(&st, KIND(PROMOTE), 7, NULL), ERR_MEMBER_NOT_LEARNER);
	ck_assert_int_eq(change(&st, KIND(REMOVE), 7, NULL), ERR_OK);
	ck_assert_ptr_null(member_find(&st, 7));
	state_deinit(&st);
}
END_TEST

START_TEST(change__last_voter_does_not_leave)
{
	static const char *const url[] = { ADDRESS };
	struct state st;

	state_init(&st);
	member_add_initial(&st, &(struct member_spec){ .name = "a", .peer_urls = url, .peer_urls_len = 1 }, "t");
	ck_assert_int_eq(change(&st, KIND(LEAVE), member_derive_id(url, 1, "t"), NULL), ERR_MEMBER_NOT_ENOUGH_STARTED);
	state_deinit(&st);
}
END_TEST

START_TEST(change__removed_id_never_comes_back_and_its_address_may)
{
	struct state st;

	set_up(&st);
	ck_assert_int_eq(change(&st, KIND(REMOVE), ID, NULL), ERR_MEMBER_NOT_ENOUGH_STARTED); /* the last one that counts */
	ck_assert_int_eq(change(&st, KIND(ADD_VOTER), 7, ADDRESS), ERR_OK);
	ck_assert_int_eq(change(&st, KIND(REMOVE), ID, NULL), ERR_MEMBER_NOT_ENOUGH_STARTED); /* the other one does not count yet */
	ck_assert_int_eq(change(&st, KIND(REMOVE), 7, NULL), ERR_OK);
	ck_assert_ptr_null(member_find(&st, 7));
	ck_assert(member_was_removed(&st, 7));
	ck_assert_int_eq(change(&st, KIND(ADD_LEARNER), 7, ADDRESS), ERR_MEMBER_EXISTS);
	ck_assert_int_eq(change(&st, KIND(ADD_LEARNER), 8, ADDRESS), ERR_OK);
	state_deinit(&st);
}
END_TEST

START_TEST(change__addresses_are_nobody_elses)
{
	struct state st;

	set_up(&st);
	ck_assert_int_eq(change(&st, KIND(ADD_VOTER), ID, ADDRESS), ERR_MEMBER_EXISTS);
	ck_assert_int_eq(change(&st, KIND(ADD_VOTER), 7, urls[1]), ERR_PEER_URL_EXISTS);
	ck_assert_int_eq(change(&st, KIND(ADD_VOTER), 7, "nonsense"), ERR_MEMBER_BAD_URLS);
	ck_assert_int_eq(change(&st, KIND(ADD_VOTER), 7, ADDRESS), ERR_OK);
	ck_assert_int_eq(change(&st, KIND(UPDATE), 7, urls[0]), ERR_PEER_URL_EXISTS);
	ck_assert_int_eq(change(&st, KIND(UPDATE), 7, ADDRESS), ERR_OK); /* its own */
	ck_assert_int_eq(change(&st, KIND(UPDATE), 7, "http://10.0.0.10:2380"), ERR_OK);
	ck_assert_str_eq(member_find(&st, 7)->peer_urls[0], "http://10.0.0.10:2380");
	ck_assert_int_eq(change(&st, KIND(UPDATE), 7, NULL), ERR_MEMBER_BAD_URLS);
	ck_assert_int_eq(change(&st, KIND(UPDATE), 9, ADDRESS), ERR_MEMBER_NOT_FOUND);
	ck_assert_int_eq(change(&st, 99, 7, NULL), ERR_MALFORMED);
	state_deinit(&st);
}
END_TEST

START_TEST(change__members_and_removed_are_bounded)
{
	struct state st;
	char url[64];

	set_up(&st);
	for (unsigned i = 1; i < MEMBERS_MAX; i++) {
		snprintf(url, sizeof(url), "http://10.0.1.%u:2380", i);
		ck_assert_int_eq(change(&st, KIND(ADD_VOTER), 100 + i, url), ERR_OK);
	}
	ck_assert_int_eq(change(&st, KIND(ADD_VOTER), 99, ADDRESS), ERR_TOO_MANY_MEMBERS);
	ck_assert_int_eq(change(&st, KIND(REMOVE), 101, NULL), ERR_OK);
	for (unsigned i = 0; i < MEMBER_REMOVED_MAX; i++) {
		ck_assert_int_eq(change(&st, KIND(ADD_VOTER), 1000 + i, ADDRESS), ERR_OK);
		ck_assert_int_eq(change(&st, KIND(REMOVE), 1000 + i, NULL), ERR_OK);
	}
	ck_assert_uint_eq(st.removed.len, MEMBER_REMOVED_MAX);
	ck_assert(!member_was_removed(&st, 101)); /* the oldest went */
	ck_assert(member_was_removed(&st, 1000));
	state_deinit(&st);
}
END_TEST

static const struct {
	const char *url;
	bool good;
} url_cases[] = {
	{ "http://127.0.0.1:2380", true }, { "https://a.example:1", true }, { "http://[::1]:2380", true }, { "unix:///run/x", true },
	{ "", false }, { "127.0.0.1:2380", false }, { "http://127.0.0.1", false }, { "http://127.0.0.1:", false }, { "http://:2380", false },
	{ "http://[]:1", false }, { "http://[::1", false }, { "http://a:0", false }, { "http://a:65536", false }, { "http://a:12x", false },
	{ "http://a:2380/", false }, { "http://a:2380/path", false }, { "http://a b:2380", false }, { "http://u@a:2380", false }, { "ftp://a:21", false },
	{ "unix://", false }, { "http://a,b:1", false },
};

START_TEST(change__addresses_have_a_form)
{
	ck_assert_msg(member_peer_urls_are_valid(&url_cases[_i].url, 1) == url_cases[_i].good, "%s", url_cases[_i].url);
}
END_TEST

START_TEST(change__no_address_twice_and_at_least_one)
{
	const char *const twice[] = { ADDRESS, ADDRESS };

	ck_assert(!member_peer_urls_are_valid(twice, 2));
	ck_assert(!member_peer_urls_are_valid(twice, 0));
	ck_assert(member_peer_urls_are_valid(twice, 1));
}
END_TEST

START_TEST(change__id_of_an_added_member_has_the_time_in_it)
{
	const char *const url[] = { "http://127.0.0.1:9999" };

	ck_assert_uint_eq(member_derive_added_id(url, 1, 1700000000), member_derive_id(url, 1, "1700000000"));
	ck_assert_uint_ne(member_derive_added_id(url, 1, 1700000000), member_derive_added_id(url, 1, 1700000001));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_member");
	TCase *tc = tcase_create("member");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(tc, member__ids_are_those_of_etcd, 0, LEN(id_cases));
	tcase_add_test(tc, member__cell_ids_are_those_of_etcd);
	tcase_add_test(tc, member__initial_members_are_equal_everywhere);
	tcase_add_test(tc, member__is_found_with_its_addresses_sorted);
	tcase_add_test(tc, member__publish_binds_the_data_directory_for_good);
	tcase_add_test(tc, member__publish_does_not_show_in_an_open_view);
	tcase_add_test(tc, member__publish_keeps_to_its_bounds);
	tcase_add_test(tc, member__record_survives_encode_and_decode);
	tcase_add_test(tc, member__record_is_never_taken_for_another);
	tcase_add_test(tc, change__voter_is_counted_once_it_has_joined);
	tcase_add_test(tc, change__learner_is_counted_once_it_is_promoted);
	tcase_add_test(tc, change__voter_that_leaves_is_counted_no_more_until_it_is_removed);
	tcase_add_test(tc, change__last_voter_does_not_leave);
	tcase_add_test(tc, change__removed_id_never_comes_back_and_its_address_may);
	tcase_add_test(tc, change__addresses_are_nobody_elses);
	tcase_add_test(tc, change__members_and_removed_are_bounded);
	tcase_add_loop_test(tc, change__addresses_have_a_form, 0, LEN(url_cases));
	tcase_add_test(tc, change__no_address_twice_and_at_least_one);
	tcase_add_test(tc, change__id_of_an_added_member_has_the_time_in_it);
	suite_add_tcase(s, tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
