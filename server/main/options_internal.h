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

/* options_values.c: each reads a text; false: em says what is wrong with it, and *ret may have been emptied. */
void value_urls_free(struct url_list *l);
bool value_add_url(struct url_list *l, const char *text, size_t len, struct errmsg *em);
bool value_urls(struct url_list *l, const char *value, struct errmsg *em); /* instead of what was there */
bool value_number(uint64_t *ret, const char *value, uint64_t min, uint64_t max, struct errmsg *em);
bool value_parse_duration(const char *value, uint64_t *ret_ms);
bool value_duration(uint64_t *ret_ms, const char *value, uint64_t min, uint64_t max, struct errmsg *em);
bool value_bool(bool *ret, const char *value, struct errmsg *em);
bool value_list(struct text_list *l, const char *value, struct errmsg *em); /* instead of what was there */
void value_list_free(struct text_list *l);
void value_replace(char **at, const char *value);

/* options_own.c, options_members.c: flags with a form of their own. */
bool own_cluster(struct options *o, const char *value, struct errmsg *em);
bool own_state(struct options *o, const char *value, struct errmsg *em);
bool own_level(struct options *o, const char *value, struct errmsg *em);
bool own_origins(struct options *o, const char *value, struct errmsg *em);
bool own_hosts(struct options *o, const char *value, struct errmsg *em);
bool own_lock_prefixes(struct options *o, const char *value, struct errmsg *em);
bool own_metrics(struct options *o, const char *value, struct errmsg *em);
bool own_logger(struct options *o, const char *value, struct errmsg *em);
bool own_outputs(struct options *o, const char *value, struct errmsg *em);
bool own_version(struct options *o, const char *value, struct errmsg *em);
bool own_tls_min(struct options *o, const char *value, struct errmsg *em);
bool own_tls_max(struct options *o, const char *value, struct errmsg *em);
bool own_compaction_mode(struct options *o, const char *value, struct errmsg *em);
bool own_retention(struct options *o, const char *value, struct errmsg *em);
bool options_finish_compaction(struct options *o, struct errmsg *em); /* mode and retention together */
bool options_finish_members(struct options *o, struct errmsg *em);    /* what follows of the addresses; who this one is */
bool options_addresses_differ(const struct options *o, struct errmsg *em);
void options_members_free(struct options *o);

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
