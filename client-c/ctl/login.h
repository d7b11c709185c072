/* login.h: a user and his token, for a link that has one.
 *
 * The token is fetched when the first call is to be made, and again when a replica has refused it: until it is there, link_pick finds no endpoint. */
#ifndef HOLDFAST_CTL_LOGIN_H
#define HOLDFAST_CTL_LOGIN_H

#include "link.h"

struct login;

struct login *login_new(const char *user, const char *password); /* copied */
void login_free(struct login *lg); /* wipes what it knows */
void login_drop(struct login *lg); /* no call of it is under way any more */
/* Whether calls to this endpoint may go out; if not, the token is being fetched. */
bool login_ready(struct login *lg, struct link *l, struct endpoint *e);
struct slice login_token(const struct login *lg); /* empty: none */
void login_refused(struct login *lg, int code, const char *text); /* how a call ended: that may be the token's end */
/* Waits until it is there, at most until then. EXIT_DONE, also when there is no answer (the command will say so); EXIT_FAILED: refused, and said so. */
int login_first(struct login *lg, struct link *l, uint64_t until_ms);

/* From NAME:PASSWORD, or NAME with the password from the environment or the terminal. False: it was said why not. Free both. */
bool login_words(const char *user, char **ret_name, char **ret_password);
/* A password typed twice without being shown, or the first line of standard input when that is no terminal. NULL: it was said why not. */
char *login_new_password(const char *name);
void login_wipe(char *text); /* zeroes and frees; NULL is fine */

#endif
