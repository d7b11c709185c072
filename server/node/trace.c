/* trace.c: what the core has decided, as lines of the log. */
#include "internal.h"

#include "core/alarm/alarm.h"
#include "log/log.h"

static const char *alarm_name(uint64_t type)
{
	return type == ALARM_NOSPACE ? "NOSPACE" : "CORRUPT";
}

static void log_alarm(const struct core_trace *t)
{
	if (!t->c)
		log_info("alarm cleared", LOG_STR("alarm", alarm_name(t->a)), LOG_ID("member", t->b));
	else if (t->a == ALARM_NOSPACE)
		log_error("alarm raised, what grows is refused until it is cleared", LOG_STR("alarm", alarm_name(t->a)), LOG_ID("member", t->b));
	else
		log_error("alarm raised, the member stops serving", LOG_STR("alarm", alarm_name(t->a)), LOG_ID("member", t->b));
}

static void log_quota(const struct core_trace *t)
{
	if (t->c)
		log_warn("the store is at four fifths of its quota: compact, delete, or raise --quota-backend-bytes", LOG_U64("bytes", t->a),
			 LOG_U64("quota", t->b));
	else
		log_info("the store is well below its quota again", LOG_U64("bytes", t->a), LOG_U64("quota", t->b));
}

static void log_differs(const struct core_trace *t)
{
	if (t->c)
		log_error("replicas differ, and too few have answered to tell which are right; they are asked again", LOG_U64("index", t->b));
	else if (t->a)
		log_error("this member's state differs from that of a quorum", LOG_ID("member", t->a), LOG_U64("index", t->b));
	else
		log_error("the replicas differ, and no quorum agrees: the cell stops serving", LOG_U64("index", t->b));
}

void node_trace(void *ctx, const struct core_trace *t)
{
	const struct node_callbacks *to = &((struct node *)ctx)->config.callbacks;
	switch (t->kind) {
	case TRACE_HOLD_END:
		if (to->hold_ended)
			to->hold_ended(to->ctx, t->name, (enum hold_end)t->c, t->b);
		break;
	case TRACE_INSTALL:
		log_info("snapshot installed", LOG_U64("index", t->a), LOG_U64("term", t->b), LOG_U64("revision", t->c));
		break;
	case TRACE_ALARM:
		log_alarm(t);
		break;
	case TRACE_QUOTA:
		log_quota(t);
		break;
	case TRACE_RECOVERED:
		log_info("recovered from the damaged disk: the log is as it was, this replica votes and serves again", LOG_U64("last_index", t->a), LOG_U64("term", t->b));
		break;
	case TRACE_DIFFERS:
		log_differs(t);
		break;
	default:
		break;
	}
}
