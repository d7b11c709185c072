/* options_yaml.c: --config-file, as etcd has it: a mapping of flags' names to values. Two mappings within it hold the flags of TLS under shorter names.
 *
 * A value that is not there (null) leaves the default. A list is what commas make of it on the command line. Durations may be bare numbers, of nanoseconds:
 * that is how Go's JSON has them, and so etcd's files. Names that are not known have no effect with etcd; here a warning says so. */
#include "options_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/buf.h"
#include "options.h"

enum { FILE_MAX = 1 << 20 };

struct reader {
	struct options *o;
	const char *path;
	yaml_document_t doc;
	struct errmsg *em;
};

static bool is_null(const yaml_node_t *n)
{
	const char *v = (const char *)n->data.scalar.value;
	if (n->type != YAML_SCALAR_NODE || n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return false;
	return !*v || strcmp(v, "~") == 0 || strcasecmp(v, "null") == 0;
}

static bool wrong(struct reader *r, const yaml_node_t *at, const char *name, const char *what)
{
	errmsg_set(r->em, "%s, line %zu: %s%s%s", r->path, at->start_mark.line + 1, name, *name ? ": " : "", what);
	return false;
}

/* A list of scalars, with commas between them. */
static bool join(struct reader *r, const yaml_node_t *n, const char *name, struct buf *out)
{
	for (yaml_node_item_t *it = n->data.sequence.items.start; it < n->data.sequence.items.top; it++) {
		const yaml_node_t *item = yaml_document_get_node(&r->doc, *it);
		if (!item || item->type != YAML_SCALAR_NODE)
			return wrong(r, n, name, "a list of anything but plain values");
		if (out->len)
			buf_append_byte(out, ',');
		buf_append(out, item->data.scalar.value, item->data.scalar.length);
	}
	return true;
}

static bool is_duration(const char *name)
{
	static const char *const durations[] = { "grpc-keepalive-min-time", "grpc-keepalive-interval", "grpc-keepalive-timeout",
						 "watch-progress-notify-interval", "experimental-watch-progress-notify-interval" };
	for (size_t i = 0; i < sizeof(durations) / sizeof(durations[0]); i++) {
		if (strcmp(name, durations[i]) == 0)
			return true;
	}
	return false;
}

static bool is_digits(const char *s)
{
	return *s && !s[strspn(s, "0123456789")];
}

static bool set(struct reader *r, const yaml_node_t *at, const char *name, const char *value)
{
	struct errmsg why = { .text = "" };
	char text[40];
	size_t index;
	if (strcmp(name, "config-file") == 0 || options_know(name, strlen(name), &index) == OPTIONS_UNKNOWN) {
		options_warn(r->o, "a name in the configuration file is not known", name, strlen(name), "it has no effect");
		return true;
	}
	if (is_duration(name) && is_digits(value) && strlen(value) < 20) {
		snprintf(text, sizeof(text), "%llums", strtoull(value, NULL, 10) / 1000000);
		value = text;
	}
	return options_set(r->o, name, strlen(name), value, &why) || wrong(r, at, name, why.text);
}

static bool set_node(struct reader *r, const char *name, const yaml_node_t *value)
{
	struct buf list = { .ptr = NULL };
	bool ok;
	if (is_null(value))
		return true;
	if (value->type == YAML_SCALAR_NODE) {
		if (strlen((const char *)value->data.scalar.value) != value->data.scalar.length)
			return wrong(r, value, name, "a zero byte");
		/* What is empty on purpose is the default, too: etcd's own example is full of it. */
		return value->data.scalar.length == 0 || set(r, value, name, (const char *)value->data.scalar.value);
	}
	if (value->type != YAML_SEQUENCE_NODE)
		return wrong(r, value, name, "not a plain value, nor a list of them");
	ok = join(r, value, name, &list);
	buf_append_byte(&list, 0);
	ok = ok && (list.len == 1 || set(r, value, name, (const char *)list.ptr));
	buf_free(&list);
	return ok;
}

/* cert-file within client-transport-security is --cert-file, within peer-transport-security --peer-cert-file. */
static void tls_name(const char *prefix, const char *key, char *ret, size_t cap)
{
	static const char *const others[][3] = {
		{ "", "allowed-hostname", "client-cert-allowed-hostname" }, { "peer-", "allowed-hostname", "peer-cert-allowed-hostname" },
		{ "", "crl-file", "client-crl-file" },                      { "peer-", "allowed-cn", "peer-cert-allowed-cn" },
	};
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (strcmp(others[i][0], prefix) == 0 && strcmp(others[i][1], key) == 0) {
			snprintf(ret, cap, "%s", others[i][2]);
			return;
		}
	}
	snprintf(ret, cap, "%s%s", prefix, key);
}

static const char *tls_prefix(const char *key)
{
	if (strcmp(key, "client-transport-security") == 0)
		return "";
	return strcmp(key, "peer-transport-security") == 0 ? "peer-" : NULL;
}

/* prefix NULL: the file's own mapping. */
static bool read_mapping(struct reader *r, const yaml_node_t *map, const char *prefix)
{
	for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
		const yaml_node_t *key = yaml_document_get_node(&r->doc, p->key), *value = yaml_document_get_node(&r->doc, p->value);
		const char *inner;
		char name[128];
		if (!key || !value || key->type != YAML_SCALAR_NODE || key->data.scalar.length >= 64)
			return wrong(r, map, "", "a name that is none");
		inner = prefix ? NULL : tls_prefix((const char *)key->data.scalar.value);
		if (inner) {
			if (is_null(value))
				continue;
			if (value->type != YAML_MAPPING_NODE)
				return wrong(r, value, (const char *)key->data.scalar.value, "not a mapping");
			if (!read_mapping(r, value, inner))
				return false;
			continue;
		}
		tls_name(prefix ? prefix : "", (const char *)key->data.scalar.value, name, sizeof(name));
		if (!set_node(r, prefix ? name : (const char *)key->data.scalar.value, value))
			return false;
	}
	return true;
}

static bool read_document(struct reader *r)
{
	const yaml_node_t *root = yaml_document_get_root_node(&r->doc);
	if (!root || is_null(root))
		return true; /* an empty file: all defaults */
	if (root->type != YAML_MAPPING_NODE)
		return wrong(r, root, "", "not a mapping of names to values");
	return read_mapping(r, root, NULL);
}

static bool read_text(struct options *o, const char *path, FILE *f, struct errmsg *em)
{
	struct reader r = { .o = o, .path = path, .em = em };
	yaml_parser_t parser;
	bool ok;
	if (!yaml_parser_initialize(&parser)) {
		errmsg_set(em, "--config-file: out of memory");
		return false;
	}
	yaml_parser_set_input_file(&parser, f);
	if (!yaml_parser_load(&parser, &r.doc)) {
		errmsg_set(em, "%s, line %zu: %s", path, parser.problem_mark.line + 1, parser.problem ? parser.problem : "not YAML");
		yaml_parser_delete(&parser);
		return false;
	}
	ok = read_document(&r);
	yaml_document_delete(&r.doc);
	yaml_parser_delete(&parser);
	return ok;
}

bool options_from_yaml(struct options *o, const char *path, struct errmsg *em)
{
	FILE *f = fopen(path, "re");
	long size;
	bool ok = false;
	if (!f) {
		errmsg_set(em, "--config-file: cannot open '%s': %s", path, strerror(errno));
		return false;
	}
	if (fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0 || size > FILE_MAX)
		errmsg_set(em, "--config-file: '%s' is no file, or one of more than %d bytes", path, FILE_MAX);
	else
		rewind(f), ok = read_text(o, path, f, em);
	fclose(f);
	return ok;
}
