/* credentials.c: see credentials.h. */
#include "credentials.h"

#include <stdatomic.h>
#include <string.h>

#include "auth/audit.h"
#include "auth/password.h"
#include "auth/signed_token.h"

static atomic_uint_fast64_t reloads, bad_reloads;

enum err credentials_open(const struct options *o, struct service_parts *ret, struct errmsg *em)
{
	struct errmsg why = { .text = "" };
	enum err e = ERR_OK;
	if (strncmp(o->auth_token, "jwt,", 4) == 0) {
		e = signed_tokens_new(o->auth_token + 4, &ret->signed_tokens, &why);
	} else if (strcmp(o->auth_token, "simple") != 0) {
		errmsg_set(&why, "'%s' is neither 'simple' nor 'jwt,...'", o->auth_token);
		e = ERR_SYNTAX;
	}
	if (e) {
		errmsg_set(em, "--auth-token: %s", why.text);
		return e;
	}
	ret->passwords = passwords_new((unsigned)o->bcrypt_cost);
	return o->audit_log ? audit_open(o->audit_log, &ret->audit, em) : ERR_OK;
}

void credentials_tick(const struct service_parts *p)
{
	bool bad = false;
	const char *what = p->signed_tokens ? signed_tokens_reload(p->signed_tokens, &bad) : NULL;
	if (!what)
		return;
	atomic_fetch_add(bad ? &bad_reloads : &reloads, 1);
	if (bad)
		log_error(what);
	else
		log_info(what);
}

void credentials_hang_up(const struct service_parts *p)
{
	if (p->audit)
		audit_reopen(p->audit);
}

static void counter(struct buf *out, const char *name, const char *help, uint64_t value)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s counter\n%s %llu\n", name, help, name, name, (unsigned long long)value);
}

void credentials_metrics(const struct service_parts *p, struct buf *out)
{
	if (p->audit)
		counter(out, "holdfast_audit_dropped_total", "Lines that the audit log has lost.", audit_dropped(p->audit));
	if (p->signed_tokens) {
		counter(out, "holdfast_auth_key_reloads_total", "Times the keys of signed tokens were read again.", atomic_load(&reloads));
		counter(out, "holdfast_auth_key_reload_failures_total", "Times they had changed and could not be used.", atomic_load(&bad_reloads));
	}
}

void credentials_stop(struct service_parts *p)
{
	passwords_free(p->passwords);
	p->passwords = NULL;
}

void credentials_close(struct service_parts *p)
{
	credentials_stop(p);
	signed_tokens_free(p->signed_tokens);
	audit_close(p->audit);
}
