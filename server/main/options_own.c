/* options_own.c: flags whose values have a form of their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options_internal.h"

bool own_state(struct options *o, const char *value, struct errmsg *em)
{
	o->existing = strcmp(value, "existing") == 0;
	if (!o->existing && strcmp(value, "new") != 0) {
		errmsg_set(em, "'%s' is neither 'new' nor 'existing'", value);
		return false;
	}
	return true;
}

bool own_level(struct options *o, const char *value, struct errmsg *em)
{
	if (!log_parse_level(value, &o->log_level)) {
		errmsg_set(em, "'%s' is none of debug, info, warn, error", value);
		return false;
	}
	return true;
}

/* A star anywhere is everybody. */
static bool set_who(struct text_list *l, const char *value, struct errmsg *em)
{
	if (!value_list(l, value, em))
		return false;
	for (size_t i = 0; i < l->len; i++) {
		if (strcmp(l->items[i], "*") == 0) {
			value_list_free(l);
			break;
		}
	}
	return true;
}

bool own_origins(struct options *o, const char *value, struct errmsg *em)
{
	return set_who(&o->cors, value, em);
}

bool own_hosts(struct options *o, const char *value, struct errmsg *em)
{
	return set_who(&o->host_whitelist, value, em);
}

/* They are labels of metrics, whose form leaves no choice. */
bool own_lock_prefixes(struct options *o, const char *value, struct errmsg *em)
{
	if (!value_list(&o->lock_metrics_prefixes, value, em))
		return false;
	for (size_t i = 0; i < o->lock_metrics_prefixes.len; i++) {
		const char *p = o->lock_metrics_prefixes.items[i];
		if (strlen(p) >= 64 || strcspn(p, "\"\\\n") != strlen(p)) {
			errmsg_set(em, "'%s' is longer than 63 bytes, or has a quote or a backslash", p);
			return false;
		}
	}
	return true;
}

bool own_metrics(struct options *o, const char *value, struct errmsg *em)
{
	o->extensive_metrics = strcmp(value, "extensive") == 0;
	if (!o->extensive_metrics && strcmp(value, "basic") != 0) {
		errmsg_set(em, "'%s' is neither 'basic' nor 'extensive'", value);
		return false;
	}
	return true;
}

bool own_logger(struct options *o, const char *value, struct errmsg *em)
{
	bool json = strcmp(value, "zap") == 0;
	if (!json && strcmp(value, "text") != 0 && strcmp(value, "capnslog") != 0) {
		errmsg_set(em, "'%s' is none of text, zap, capnslog", value);
		return false;
	}
	o->log_format = json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
	return true;
}

bool own_outputs(struct options *o, const char *value, struct errmsg *em)
{
	if (!value_list(&o->log_outputs, value, em))
		return false;
	if (o->log_outputs.len == 0 || o->log_outputs.len > OPTIONS_OUTPUTS_MAX) {
		errmsg_set(em, "1 to %d outputs", OPTIONS_OUTPUTS_MAX);
		return false;
	}
	for (size_t i = 0; i < o->log_outputs.len; i++) {
		/* What a unit writes to stderr is what the journal shows of it. */
		if (strcmp(o->log_outputs.items[i], "default") == 0 || strcmp(o->log_outputs.items[i], "systemd/journal") == 0)
			value_replace(&o->log_outputs.items[i], "stderr");
	}
	return true;
}

bool own_version(struct options *o, const char *value, struct errmsg *em)
{
	unsigned major, minor, patch;
	int end = 0;
	if (sscanf(value, "%3u.%3u.%3u%n", &major, &minor, &patch, &end) != 3 || value[end] || value[strspn(value, "0123456789.")] || major != 3) {
		errmsg_set(em, "'%s' is not a version of etcd 3 such as 3.5.21", value);
		return false;
	}
	value_replace(&o->etcd_version, value);
	return true;
}

static bool set_tls_version(int *ret, const char *value, struct errmsg *em)
{
	if (options_tls_version(value, ret))
		return true;
	errmsg_set(em, "'%s' is neither 'TLS1.2' nor 'TLS1.3'", value);
	return false;
}

bool own_tls_min(struct options *o, const char *value, struct errmsg *em)
{
	return set_tls_version(&o->tls_min_version, value, em);
}

bool own_tls_max(struct options *o, const char *value, struct errmsg *em)
{
	return set_tls_version(&o->tls_max_version, value, em);
}

/* The mode decides how the retention is read, and may come after it: both are settled in finish(). */
bool own_compaction_mode(struct options *o, const char *value, struct errmsg *em)
{
	if (strcmp(value, "periodic") != 0 && strcmp(value, "revision") != 0) {
		errmsg_set(em, "'%s' is neither 'periodic' nor 'revision'", value);
		return false;
	}
	value_replace(&o->auto_compaction_mode, value);
	return true;
}

bool own_retention(struct options *o, const char *value, struct errmsg *em)
{
	(void)em;
	value_replace(&o->auto_compaction_retention, value);
	return true;
}

static bool finish_retention(struct options *o, const char *v, struct errmsg *em)
{
	if (strcmp(o->auto_compaction_mode, "revision") == 0)
		return value_number(&o->auto_compaction_revisions, v, 0, INT64_MAX, em);
	if (v[strspn(v, "0123456789")] == '\0' && *v) { /* etcd: a plain number is hours */
		if (!value_number(&o->auto_compaction_ms, v, 0, 1000000, em))
			return false;
		o->auto_compaction_ms *= 3600000;
		return true;
	}
	if (!value_parse_duration(v, &o->auto_compaction_ms)) {
		errmsg_set(em, "'%s' is not a duration such as 5m or 1h", v);
		return false;
	}
	return true;
}

bool options_finish_compaction(struct options *o, struct errmsg *em)
{
	static const char name[] = "auto-compaction-retention";
	struct errmsg why = { .text = "" };
	const char *v = o->auto_compaction_retention;
	if (!v)
		v = strcmp(o->auto_compaction_mode, "revision") == 0 ? "0" : "5m";
	if (finish_retention(o, v, &why))
		return true;
	errmsg_set(em, "--%s: %s", name, why.text);
	return false;
}
