/* list.h: intrusive doubly linked list. The head is a node of its own; nobody owns anything here. */
#ifndef HOLDFAST_BASE_LIST_H
#define HOLDFAST_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert_between(struct list *n, struct list *prev, struct list *next)
{
	n->prev = prev;
	n->next = next;
	prev->next = n;
	next->prev = n;
}

static inline void list_push_back(struct list *head, struct list *n)
{
	list_insert_between(n, head->prev, head);
}

static inline void list_push_front(struct list *head, struct list *n)
{
	list_insert_between(n, head, head->next);
}

/* Unlinks and re-initialises, so that removing twice is harmless. */
static inline void list_remove(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

/* The first node, unlinked; NULL when empty. */
static inline struct list *list_pop_front(struct list *head)
{
	struct list *n = head->next;
	if (n == head)
		return NULL;
	list_remove(n);
	return n;
}

#define LIST_FOR_EACH(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
/* Survives the removal of `it` (but not of its successor). */
#define LIST_FOR_EACH_SAFE(it, tmp, head) \
	for (struct list *it = (head)->next, *tmp = it->next; it != (head); it = tmp, tmp = it->next)

#endif
