/* options_internal.h: what the files of the options share. */
#ifndef HOLDFAST_MAIN_OPTIONS_INTERNAL_H
#define HOLDFAST_MAIN_OPTIONS_INTERNAL_H

#include "options.h"

#define OPTIONS_FLAGS_MAX 128

enum options_known {
	OPTIONS_UNKNOWN,
	OPTIONS_VALUE,
	OPTIONS_SWITCH, /* true or false; alone it is true */
};

char *options_copy(const char *s, size_t len);
void options_warn(struct options *o, const char *message, const char *flag, size_t flag_len, const char *detail);

/* ret_index: below OPTIONS_FLAGS_MAX for a flag with a meaning here, SIZE_MAX for one that is only taken. */
enum options_known options_know(const char *name, size_t len, size_t *ret_index);
bool options_set(struct options *o, const char *name, size_t len, const char *value, struct errmsg *em); /* of a known one; em without the flag's name */
const char *options_name(size_t index); /* NULL: there are no more */

/* options_ignored.c: flags of etcd without a meaning here, and those that must not be taken lightly. */
enum options_known options_ignored_know(const char *name, size_t len);
bool options_ignored_set(struct options *o, const char *name, size_t len, const char *value, struct errmsg *em);

/* options_env.c */
const char *options_env_value(char **env, const char *flag); /* HOLDFAST_FLAG, else ETCD_FLAG, else NULL; empty is as good as none */
bool options_from_env(struct options *o, char **env, const bool seen[OPTIONS_FLAGS_MAX], struct errmsg *em);

/* options_tls.c */
bool options_tls_version(const char *value, int *ret); /* "TLS1.2", "TLS1.3", "": 0 */
bool options_finish_tls(struct options *o, struct errmsg *em); /* what the flags for TLS mean together */

/* options_yaml.c */
bool options_from_yaml(struct options *o, const char *path, struct errmsg *em);

#endif
