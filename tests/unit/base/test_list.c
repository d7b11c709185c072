#include "base/list.h"

#include "base/mem.h"
#include "suites.h"

struct item {
	int id;
	struct list link;
};

static struct item *item_of(struct list *link)
{
	return CONTAINER_OF(link, struct item, link);
}

static void assert_ids(const struct list *head, const int *want, size_t len)
{
	size_t i = 0;

	LIST_FOR_EACH(it, head) {
		ck_assert_uint_lt(i, len);
		ck_assert_int_eq(item_of(it)->id, want[i]);
		ck_assert_ptr_eq(it->prev->next, it);
		i++;
	}
	ck_assert_uint_eq(i, len);
}

START_TEST(list__starts_empty)
{
	struct list head;

	list_init(&head);
	ck_assert(list_empty(&head));
	ck_assert_ptr_null(list_pop_front(&head));
	assert_ids(&head, NULL, 0);
}
END_TEST

START_TEST(list__keeps_order_at_both_ends)
{
	struct list head;
	struct item a = { .id = 1 }, b = { .id = 2 }, c = { .id = 3 };

	list_init(&head);
	list_push_back(&head, &b.link);
	list_push_back(&head, &c.link);
	list_push_front(&head, &a.link);
	assert_ids(&head, (int[]){ 1, 2, 3 }, 3);
	ck_assert_ptr_eq(list_pop_front(&head), &a.link);
	assert_ids(&head, (int[]){ 2, 3 }, 2);
}
END_TEST

START_TEST(list__removing_twice_is_harmless)
{
	struct list head;
	struct item a = { .id = 1 }, b = { .id = 2 }, c = { .id = 3 };

	list_init(&head);
	list_push_back(&head, &a.link);
	list_push_back(&head, &b.link);
	list_push_back(&head, &c.link);
	list_remove(&b.link);
	list_remove(&b.link);
	assert_ids(&head, (int[]){ 1, 3 }, 2);
	list_remove(&a.link);
	list_remove(&c.link);
	ck_assert(list_empty(&head));
}
END_TEST

START_TEST(list__safe_walk_survives_removal)
{
	struct list head;
	struct item items[5];

	list_init(&head);
	for (int i = 0; i < 5; i++) {
		items[i].id = i;
		list_push_back(&head, &items[i].link);
	}
	LIST_FOR_EACH_SAFE(it, next, &head)
		if (item_of(it)->id % 2 == 0)
			list_remove(it);
	assert_ids(&head, (int[]){ 1, 3 }, 2);
}
END_TEST

Suite *list_suite(void)
{
	Suite *s = suite_create("list");
	TCase *tc = tcase_create("list");

	tcase_add_test(tc, list__starts_empty);
	tcase_add_test(tc, list__keeps_order_at_both_ends);
	tcase_add_test(tc, list__removing_twice_is_harmless);
	tcase_add_test(tc, list__safe_walk_survives_removal);
	suite_add_tcase(s, tc);
	return s;
}
