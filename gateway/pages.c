/* pages.c: what is no method: health, version, metrics.
 *
 * Three questions, three answers, so that no supervisor acts upon the wrong one:
 *   /livez   is this process to be restarted? Red only when its core takes no turns any more. Never for lack of space, or of a leader.
 *   /readyz  can it be asked? Red when a read through the cell's quorum is not answered, or before it has caught up. Not for lack of space: reads and locks work.
 *   /health  etcd's: red for both, and for alarms; "?serializable=true" leaves the cell out, "?exclude=NOSPACE" an alarm.
 * A page that has to ask the cell (probe.c) is served twice: all that is known here is looked at again when the cell has answered. */
#include <inttypes.h>

#include "base/mem.h"
#include "internal.h"
#include "metrics.h"

#define TEXT_PLAIN "text/plain; charset=utf-8"

/* ---- the query ---- */

static bool next_pair(struct slice *query, struct slice *ret_name, struct slice *ret_value)
{
	const uint8_t *end, *eq;
	struct slice pair;
	if (!query->len)
		return false;
	end = memchr(query->ptr, '&', query->len);
	pair = slice_of(query->ptr, end ? (size_t)(end - query->ptr) : query->len);
	*query = end ? slice_of(end + 1, query->len - pair.len - 1) : slice_of(NULL, 0);
	eq = pair.len ? memchr(pair.ptr, '=', pair.len) : NULL;
	*ret_name = eq ? slice_of(pair.ptr, (size_t)(eq - pair.ptr)) : pair;
	*ret_value = eq ? slice_of(eq + 1, pair.len - ret_name->len - 1) : slice_of(NULL, 0);
	return true;
}

static struct slice query_of(const h2o_req_t *req)
{
	struct slice path = slice_of(req->path.base, req->path.len);
	const uint8_t *q = path.len ? memchr(path.ptr, '?', path.len) : NULL;
	return q ? slice_of(q + 1, path.len - (size_t)(q + 1 - path.ptr)) : slice_of(NULL, 0);
}

/* Whether the query has the name, with this value (NULL: with any). */
static bool asks(const h2o_req_t *req, const char *name, const char *value)
{
	struct slice query = query_of(req), n, v;
	while (next_pair(&query, &n, &v)) {
		if (slice_eq(n, slice_of_str(name)) && (!value || slice_eq(v, slice_of_str(value))))
			return true;
	}
	return false;
}

/* ---- /health ---- */

static const char *why_unhealthy(const h2o_req_t *req, const struct node_health *h, bool serializable)
{
	if (h->silence_ms > GATEWAY_SILENCE_MAX_MS)
		return "the core does not answer";
	if (h->corrupt && !asks(req, "exclude", "CORRUPT"))
		return "ALARM CORRUPT";
	if (h->no_space && !asks(req, "exclude", "NOSPACE"))
		return "ALARM NOSPACE";
	if (h->recovering)
		return "recovering from a damaged disk";
	if (!serializable && !h->leader_id)
		return "RAFT NO LEADER";
	return serializable || h->serving ? NULL : "not caught up yet";
}

static void health(struct exchange *ex, struct slice rest)
{
	bool serializable = asks(ex->req, "serializable", "true");
	struct node_health h;
	const char *why, *more = "";
	char text[256];
	(void)rest;
	node_health(ex->gateway->config.node, &h);
	why = why_unhealthy(ex->req, &h, serializable);
	if (!why && !serializable) {
		if (!probe_ask(ex))
			return;
		if (ex->probe_err) {
			why = "RANGE ERROR:";
			more = err_text(ex->probe_err);
		}
	}
	metric_add(why ? METRIC_HEALTH_BAD : METRIC_HEALTH_OK, 1);
	if (!why) {
		reply_text(ex, 200, TEXT_PLAIN, slice_of_str("{\"health\":\"true\"}"));
		return;
	}
	snprintf(text, sizeof(text), "{\"health\":\"false\",\"reason\":\"%s%s\"}\n", why, more);
	reply_text(ex, 503, TEXT_PLAIN, slice_of_str(text));
}

/* ---- /livez, /readyz ---- */

static const char *check_serializable_read(const struct node_health *h)
{
	return h->silence_ms > GATEWAY_SILENCE_MAX_MS ? "the core does not answer" : NULL;
}

static const char *check_linearizable_read(const struct node_health *h)
{
	if (!h->leader_id)
		return "no leader";
	return h->serving ? NULL : "not caught up yet";
}

static const char *check_data_corruption(const struct node_health *h)
{
	if (h->recovering)
		return "the disk was damaged, recovering from the peers";
	return h->corrupt ? "alarm activated: CORRUPT" : NULL;
}

static const char *check_non_learner(const struct node_health *h)
{
	return h->learner ? "this member is a learner" : NULL;
}

static const struct check {
	const char *name;
	const char *(*failed)(const struct node_health *h); /* why; NULL: it is well */
	bool alive;                                         /* of /livez too */
	bool probe;                                         /* the cell has a say too */
} checks[PAGE_CHECKS] = {
	{ "data_corruption", check_data_corruption, false, false },
	{ "serializable_read", check_serializable_read, true, false },
	{ "linearizable_read", check_linearizable_read, false, true },
	{ "non_learner", check_non_learner, false, false },
};

static bool is_asked(const struct exchange *ex, const struct check *c, bool alive, struct slice only)
{
	if (alive && !c->alive)
		return false;
	if (only.len)
		return slice_eq(only, slice_of_str(c->name));
	if (asks(ex->req, "allowlist", NULL) && !asks(ex->req, "allowlist", c->name))
		return false;
	return !asks(ex->req, "exclude", c->name);
}

/* False: the cell is being asked, and the page will be served again. */
static bool is_probed(struct exchange *ex, bool alive, struct slice only, const struct node_health *h)
{
	for (size_t i = 0; i < PAGE_CHECKS; i++) {
		if (checks[i].probe && is_asked(ex, &checks[i], alive, only) && !checks[i].failed(h))
			return probe_ask(ex);
	}
	return true;
}

static bool run_check(struct exchange *ex, const struct check *c, const struct node_health *h, struct buf *out)
{
	const char *why = c->failed(h), *what = "";
	if (!why && c->probe && ex->probe_err) {
		what = "range error: ";
		why = err_text(ex->probe_err);
	}
	if (why)
		buf_printf(out, "[-]%s failed: %s%s\n", c->name, what, why);
	else
		buf_printf(out, "[+]%s ok\n", c->name);
	return !why;
}

static void count_check(struct check_figures *f, bool ok)
{
	f->last_ok = ok;
	*(ok ? &f->ok : &f->failed) += 1;
}

/* only: one check's name, from "/livez/NAME"; empty: all. */
static void run_checks(struct exchange *ex, bool alive, struct slice only)
{
	bool verbose = asks(ex->req, "verbose", NULL), all_ok = true, any = false;
	struct buf text = { .ptr = NULL };
	struct node_health h;
	node_health(ex->gateway->config.node, &h);
	if (!is_probed(ex, alive, only, &h))
		return;
	for (size_t i = 0; i < PAGE_CHECKS; i++) {
		bool ok;
		if (!is_asked(ex, &checks[i], alive, only))
			continue;
		any = true;
		ok = run_check(ex, &checks[i], &h, &text);
		count_check(&ex->gateway->checks[alive][i], ok);
		all_ok = all_ok && ok;
	}
	if (only.len && !any) {
		reply_plain_error(ex, 404, NULL);
	} else if (!all_ok) {
		reply_text(ex, 503, TEXT_PLAIN, buf_view(&text));
	} else {
		if (!verbose)
			buf_clear(&text);
		buf_append(&text, "ok\n", 3);
		reply_text(ex, 200, TEXT_PLAIN, buf_view(&text));
	}
	buf_free(&text);
}

static void live(struct exchange *ex, struct slice rest)
{
	run_checks(ex, true, rest);
}

static void ready(struct exchange *ex, struct slice rest)
{
	run_checks(ex, false, rest);
}

/* As etcd 3.5 has them. */
void pages_write_metrics(const struct gateway *g, struct buf *out)
{
	static const char *const kinds[] = { "readyz", "livez" };
	const char *last = "etcd_server_healthcheck", *all = "etcd_server_healthchecks_total";
	metric_head(out, last, "gauge", "Whether each check was well when it was last asked for.");
	for (size_t k = 0; k < 2; k++) {
		for (size_t i = 0; i < PAGE_CHECKS; i++) {
			const struct check_figures *f = &g->checks[k][i];
			if (f->ok || f->failed)
				buf_printf(out, "%s{name=\"%s\",type=\"%s\"} %d\n", last, checks[i].name, kinds[k], f->last_ok);
		}
	}
	metric_head(out, all, "counter", "How often each check was asked for, by its outcome.");
	for (size_t k = 0; k < 2; k++) {
		for (size_t i = 0; i < PAGE_CHECKS; i++) {
			const struct check_figures *f = &g->checks[k][i];
			if (f->ok)
				buf_printf(out, "%s{name=\"%s\",status=\"success\",type=\"%s\"} %" PRIu64 "\n", all, checks[i].name, kinds[k], f->ok);
			if (f->failed)
				buf_printf(out, "%s{name=\"%s\",status=\"error\",type=\"%s\"} %" PRIu64 "\n", all, checks[i].name, kinds[k], f->failed);
		}
	}
}

/* ---- the others ---- */

/* The cell's version has no patch. */
static void version(struct exchange *ex, struct slice rest)
{
	const char *own = ex->gateway->config.server_version;
	const char *patch = strrchr(own, '.');
	struct buf text = { .ptr = NULL };
	(void)rest;
	buf_printf(&text, "{\"etcdserver\":\"%s\",\"etcdcluster\":\"%.*s.0\"}", own, patch ? (int)(patch - own) : (int)strlen(own), own);
	reply_text(ex, 200, "application/json", buf_view(&text));
	buf_free(&text);
}

static void metrics(struct exchange *ex, struct slice rest)
{
	struct buf text = { .ptr = NULL };
	(void)rest;
	metrics_write(ex->gateway, &text);
	reply_text(ex, 200, "text/plain; version=0.0.4; charset=utf-8", buf_view(&text));
	buf_free(&text);
}

static const struct page {
	const char *path;
	void (*serve)(struct exchange *ex, struct slice rest);
	bool head;  /* HEAD too; where etcd refuses it, so do we */
	bool deep;  /* "/PATH/REST" too */
} pages[] = {
	{ "/health", health, false, false }, { "/livez", live, true, true },	{ "/readyz", ready, true, true },
	{ "/version", version, false, false }, { "/metrics", metrics, true, false },
};

/* rest: what follows "PATH/". */
static bool is_at(const struct page *p, struct slice path, struct slice *ret_rest)
{
	size_t len = strlen(p->path);
	if (path.len < len || memcmp(path.ptr, p->path, len) != 0)
		return false;
	*ret_rest = path.len > len + 1 ? slice_of(path.ptr + len + 1, path.len - len - 1) : slice_of(NULL, 0);
	return path.len == len || (p->deep && path.ptr[len] == '/' && ret_rest->len > 0);
}

bool page_serve(struct exchange *ex, struct slice path, bool get, bool head)
{
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		struct slice rest;
		if (!is_at(&pages[i], path, &rest))
			continue;
		if (get || (head && pages[i].head))
			pages[i].serve(ex, rest);
		else
			reply_plain_error(ex, 405, "GET");
		return true;
	}
	return false;
}

void page_serve_again(struct exchange *ex)
{
	struct slice path = slice_of(ex->req->path.base, ex->req->path.len), query = query_of(ex->req);
	bool found = page_serve(ex, query.ptr ? slice_of(path.ptr, path.len - query.len - 1) : path, /*get=*/true, /*head=*/false);
	ASSERT(found && !ex->probe);
}
