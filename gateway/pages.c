/* pages.c: what is no method: health, version, metrics. */
#include "base/mem.h"
#include "internal.h"

static void health(struct exchange *ex)
{
	struct node_health h;
	node_health(ex->gateway->config.node, &h);
	if (h.serving)
		reply_text(ex, 200, "text/plain; charset=utf-8", slice_of_str("{\"health\":\"true\"}"));
	else
		reply_text(ex, 503, "text/plain; charset=utf-8", slice_of_str("{\"health\":\"false\"}\n"));
}

/* Alive is who answers; ready is who can serve. */
static void live(struct exchange *ex)
{
	reply_text(ex, 200, "text/plain; charset=utf-8", slice_of_str("ok\n"));
}

static void ready(struct exchange *ex)
{
	struct node_health h;
	node_health(ex->gateway->config.node, &h);
	if (h.serving)
		live(ex);
	else
		reply_text(ex, 503, "text/plain; charset=utf-8", slice_of_str("not ready\n"));
}

/* The cell's version has no patch. */
static void version(struct exchange *ex)
{
	const char *own = ex->gateway->config.server_version;
	const char *patch = strrchr(own, '.');
	struct buf text = { .ptr = NULL };
	buf_printf(&text, "{\"etcdserver\":\"%s\",\"etcdcluster\":\"%.*s.0\"}", own, patch ? (int)(patch - own) : (int)strlen(own), own);
	reply_text(ex, 200, "application/json", buf_view(&text));
	buf_free(&text);
}

static void metrics(struct exchange *ex)
{
	struct buf text = { .ptr = NULL };
	metrics_write(ex->gateway, &text);
	reply_text(ex, 200, "text/plain; version=0.0.4; charset=utf-8", buf_view(&text));
	buf_free(&text);
}

bool page_serve(struct exchange *ex, struct slice path, bool get, bool head)
{
	static const struct {
		const char *path;
		void (*serve)(struct exchange *ex);
		bool head;
	} pages[] = {
		{ "/health", health, false },
		{ "/livez", live, false },
		{ "/readyz", ready, false },
		{ "/version", version, false },
		{ "/metrics", metrics, true },
	};
	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		if (!slice_eq(path, slice_of_str(pages[i].path)))
			continue;
		if (get || (head && pages[i].head))
			pages[i].serve(ex);
		else
			reply_plain_error(ex, 405, "GET");
		return true;
	}
	return false;
}
