/* identity.c: see identity.h. One allocation: the struct, its names, their bytes. */
#include "identity.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

static struct slice put(uint8_t **at, struct slice bytes)
{
	struct slice copy = slice_of(*at, bytes.len);
	if (bytes.len)
		memcpy(*at, bytes.ptr, bytes.len);
	*at += bytes.len;
	return copy;
}

struct identity *identity_new(const struct identity_spec *spec)
{
	size_t names_len = spec->certified ? spec->names_len : 0, size;
	static atomic_uint_fast64_t last_number;
	struct slice common_name = spec->certified ? spec->common_name : slice_of(NULL, 0);
	struct identity *id;
	struct identity_name *names;
	uint8_t *at;
	if (names_len > IDENTITY_NAMES_MAX)
		names_len = IDENTITY_NAMES_MAX;
	size = sizeof(*id) + names_len * sizeof(*names) + common_name.len;
	for (size_t i = 0; i < names_len; i++)
		size += spec->names[i].text.len;
	id = mem_zalloc(size);
	names = (struct identity_name *)(void *)(id + 1);
	at = (uint8_t *)(names + names_len);
	atomic_init(&id->refs, 1);
	id->number = atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed) + 1;
	snprintf(id->address, sizeof(id->address), "%s", spec->address ? spec->address : "");
	id->tls = spec->tls;
	id->certified = spec->certified;
	id->common_name = put(&at, common_name);
	for (size_t i = 0; i < names_len; i++)
		names[i] = (struct identity_name){ spec->names[i].kind, put(&at, spec->names[i].text) };
	id->names = names;
	id->names_len = names_len;
	return id;
}

struct identity *identity_of_address(const char *address)
{
	return identity_new(&(struct identity_spec){ .address = address });
}

struct identity *identity_ref(struct identity *id)
{
	atomic_fetch_add_explicit(&id->refs, 1, memory_order_relaxed);
	return id;
}

void identity_unref(struct identity *id)
{
	if (id && atomic_fetch_sub_explicit(&id->refs, 1, memory_order_acq_rel) == 1)
		free(id);
}
