/* login.c: see login.h. */
#include "login.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "ctl.h"
#include "etcd/rpc.pb-c.h"
#include "internal.h"
#include "signals.h"

enum { CALL_MS = 10000, RETRY_MS = 200, REFUSED_RETRY_MS = 1000, PASSWORD_MAX = 1024 };

struct login {
	char *user, *password;
	struct buf token;
	bool have, off;        /* off: the cell does not ask for users */
	bool refused;
	char text[256];
	struct link *link;
	struct call *call;     /* under way */
	struct endpoint *at;
	uint64_t retry_ms;
};

struct login *login_new(const char *user, const char *password)
{
	struct login *lg = mem_zalloc(sizeof(*lg));
	lg->user = strdup(user);
	lg->password = strdup(password);
	return lg;
}

void login_wipe(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

void login_drop(struct login *lg)
{
	call_drop(lg->call);
	lg->call = NULL;
}

void login_free(struct login *lg)
{
	if (!lg)
		return;
	free(lg->user);
	login_wipe(lg->password);
	if (lg->token.ptr)
		explicit_bzero(lg->token.ptr, lg->token.cap);
	buf_free(&lg->token);
	free(lg);
}

static void on_reply(void *owner, struct slice bytes)
{
	struct login *lg = owner;
	Etcdserverpb__AuthenticateResponse *r = (void *)message_of(&etcdserverpb__authenticate_response__descriptor, bytes);
	if (!r)
		return;
	buf_clear(&lg->token);
	buf_append_slice(&lg->token, slice_of_str(r->token));
	etcdserverpb__authenticate_response__free_unpacked(r, NULL);
}

static void on_end(void *owner, int code, const char *text, struct slice details)
{
	struct login *lg = owner;
	(void)details;
	lg->call = NULL;
	lg->have = code == STATUS_OK && lg->token.len > 0;
	lg->off = code == STATUS_FAILED_PRECONDITION && strcmp(text, err_text(ERR_AUTH_NOT_ENABLED)) == 0;
	if (lg->have || lg->off)
		return;
	lg->refused = code == STATUS_INVALID_ARGUMENT;
	snprintf(lg->text, sizeof(lg->text), "%s", text);
	lg->retry_ms = boot_ms() + (lg->refused ? REFUSED_RETRY_MS : RETRY_MS);
	if (!lg->refused)
		link_pass(lg->link, lg->at);
}

bool login_ready(struct login *lg, struct link *l, struct endpoint *e)
{
	static const struct call_class class = { on_reply, on_end };
	Etcdserverpb__AuthenticateRequest r = ETCDSERVERPB__AUTHENTICATE_REQUEST__INIT;
	if (lg->have || lg->off)
		return true;
	if (lg->call || boot_ms() < lg->retry_ms)
		return false;
	r.name = lg->user;
	r.password = lg->password;
	lg->link = l;
	lg->at = e;
	lg->call = call_start(l, e, METHOD_AUTH_AUTHENTICATE, &r.base, boot_ms() + CALL_MS, &class, lg);
	return false;
}

struct slice login_token(const struct login *lg)
{
	return lg->have ? buf_view(&lg->token) : slice_of(NULL, 0);
}

void login_refused(struct login *lg, int code, const char *text)
{
	if (strcmp(text, err_text(ERR_AUTH_INVALID_TOKEN)) == 0 || strcmp(text, err_text(ERR_AUTH_OLD_REVISION)) == 0)
		lg->have = lg->off = false;
	(void)code;
}

int login_first(struct login *lg, struct link *l, uint64_t until_ms)
{
	while (!lg->have && !lg->off && !lg->refused && boot_ms() < until_ms && !signals_stop_count() && !link_all_failed(l)) {
		link_pick(l);
		link_run(l, boot_ms() + RETRY_MS);
	}
	if (!lg->refused)
		return EXIT_DONE;
	ctl_error("cannot log in as '%s': %s", lg->user, lg->text);
	return EXIT_FAILED;
}

/* ---- passwords ---- */

/* Without its newline. NULL: the input has ended. */
static char *read_line(FILE *in)
{
	char line[PASSWORD_MAX];
	char *copy = NULL;
	if (fgets(line, sizeof(line), in)) {
		line[strcspn(line, "\r\n")] = '\0';
		copy = strdup(line);
	}
	explicit_bzero(line, sizeof(line));
	return copy;
}

/* From the terminal, with the echo off. NULL: there is none. */
static char *prompt(const char *text, const char *name)
{
	struct termios before, quiet;
	FILE *tty = fopen("/dev/tty", "r+e");
	char *line;
	if (!tty)
		return NULL;
	if (tcgetattr(fileno(tty), &before) != 0) {
		fclose(tty);
		return NULL;
	}
	quiet = before;
	quiet.c_lflag &= ~(tcflag_t)ECHO;
	tcsetattr(fileno(tty), TCSAFLUSH, &quiet);
	fprintf(tty, "%s%s: ", text, name);
	fflush(tty);
	rewind(tty);
	line = read_line(tty);
	tcsetattr(fileno(tty), TCSAFLUSH, &before);
	fprintf(tty, "\n");
	fclose(tty);
	return line;
}

bool login_words(const char *user, char **ret_name, char **ret_password)
{
	const char *colon = strchr(user, ':'), *environment = getenv("HOLDFAST_PASSWORD");
	char *password = colon ? strdup(colon + 1) : environment ? strdup(environment) : NULL;
	char *name = strndup(user, colon ? (size_t)(colon - user) : strlen(user));
	if (!password)
		password = prompt("Password of ", name);
	if (!password) {
		ctl_error("--user: no password: neither $HOLDFAST_PASSWORD nor a terminal to ask for it");
		free(name);
		return false;
	}
	*ret_name = name;
	*ret_password = password;
	return true;
}

char *login_new_password(const char *name)
{
	char *first, *second;
	if (!isatty(STDIN_FILENO)) {
		first = read_line(stdin);
		if (!first)
			ctl_error("no password on standard input");
		return first;
	}
	first = prompt("Password of ", name);
	second = first ? prompt("Type password of it again for confirmation: ", name) : NULL;
	if (!first || !second)
		ctl_error("no terminal to ask for the password");
	else if (strcmp(first, second) != 0)
		ctl_error("the passwords are not the same");
	if (first && second && strcmp(first, second) == 0) {
		login_wipe(second);
		return first;
	}
	login_wipe(first);
	login_wipe(second);
	return NULL;
}
