/* maintenance.c: etcdserverpb.Maintenance: what can be said against a request before anybody is asked. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "etcd/rpc.pb-c.h"
#include "log/log.h"

CHECK(check_alarm)
{
	const Etcdserverpb__AlarmRequest *r = REQUEST_AS(Etcdserverpb__AlarmRequest, request);
	(void)s;
	if ((unsigned)r->action > ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE) {
		*ret_detail = "holdfast: an alarm's action is GET, ACTIVATE or DEACTIVATE";
		return ERR_ALARM_TYPE;
	}
	if ((unsigned)r->alarm > ETCDSERVERPB__ALARM_TYPE__CORRUPT) {
		*ret_detail = "holdfast: an alarm is NOSPACE or CORRUPT";
		return ERR_ALARM_TYPE;
	}
	/* Stock etcd ends itself over this one. */
	if (r->action == ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE && r->alarm == ETCDSERVERPB__ALARM_TYPE__NONE)
		return ERR_ALARM_TYPE;
	return ERR_OK;
}

void note_alarm(const struct service_call *c, struct slice request, struct slice reply)
{
	struct arena *a = service_scratch();
	Etcdserverpb__AlarmRequest *r = etcdserverpb__alarm_request__unpack(&a->pb, request.len, request.ptr);
	(void)reply;
	if (r && r->action != ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__GET)
		log_warn("an operator has set or cleared alarms", LOG_STR("action", r->action == ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE ? "ACTIVATE" : "DEACTIVATE"),
			 LOG_U64("alarm", r->alarm), LOG_ID("member", r->memberid), LOG_SLICE("by", c->client));
	service_scratch_done(a);
}

/* MAJOR.MINOR or MAJOR.MINOR.PATCH, as etcd takes it. */
static bool parse_version(const char *text, unsigned long v[2])
{
	size_t parts = 0;
	for (const char *at = text;; at++) {
		char *end;
		unsigned long n;
		if (*at < '0' || *at > '9' || parts == 3)
			return false;
		n = strtoul(at, &end, 10);
		if (n > 1000000)
			return false;
		if (parts < 2)
			v[parts] = n;
		parts++;
		if (*end == '\0')
			return parts >= 2;
		if (*end != '.')
			return false;
		at = end;
	}
}

/* etcd's order and texts. What it would take, from one minor version to the one before, is refused as well: there is nothing to prepare. */
CHECK(check_downgrade)
{
	const Etcdserverpb__DowngradeRequest *r = REQUEST_AS(Etcdserverpb__DowngradeRequest, request);
	unsigned long target[2], own[2];
	(void)ret_detail;
	if (r->action == ETCDSERVERPB__DOWNGRADE_REQUEST__DOWNGRADE_ACTION__CANCEL)
		return ERR_DOWNGRADE_NONE;
	if (!parse_version(r->version, target) || !parse_version(node_etcd_version(s->node), own))
		return ERR_DOWNGRADE_BAD_FORMAT;
	if (target[0] != own[0] || target[1] + 1 != own[1])
		return ERR_DOWNGRADE_BAD_TARGET;
	return ERR_DOWNGRADE_REFUSED;
}

/* Nothing to do, and that is worth saying: memory is given back as it is freed, and the log's pages are used again. */
void note_defragment(const struct service_call *c, struct slice request, struct slice reply)
{
	(void)request, (void)reply;
	log_info("defragment was asked for, there is nothing to do: no space is held that is not used", LOG_SLICE("by", c->client));
}
