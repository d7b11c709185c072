/* options_env.c: flags as environment: --initial-cluster is HOLDFAST_INITIAL_CLUSTER or, as units written for etcd have it, ETCD_INITIAL_CLUSTER. */
#include "options_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

static const char *const prefixes[] = { "HOLDFAST_", "ETCD_" }; /* the first goes before */

/* Variables of ours that are no flags: of holdfastctl, of what it starts, and of the scripts. */
static const char *const others[] = { "LOCK", "TOKEN", "LEASE", "ENDPOINTS", "CACERT", "CERT", "KEY", "CELL", "CELL_PORT", "FLAGS", "SERVER", "TEST_" };

static bool is_of_flag(const char *name, size_t len, const char *flag)
{
	if (strlen(flag) != len)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (name[i] != (flag[i] == '-' ? '_' : toupper((unsigned char)flag[i])))
			return false;
	}
	return true;
}

/* "NAME=value" whose name begins with the prefix; *ret_name: what follows it. */
static bool split(const char *variable, const char *prefix, const char **ret_name, size_t *ret_len, const char **ret_value)
{
	size_t prefix_len = strlen(prefix);
	const char *eq = strchr(variable, '=');
	if (!eq || strncmp(variable, prefix, prefix_len) != 0)
		return false;
	*ret_name = variable + prefix_len;
	*ret_len = (size_t)(eq - *ret_name);
	*ret_value = eq + 1;
	return true;
}

static const char *value_of(char **env, const char *prefix, const char *flag)
{
	const char *name, *value;
	size_t len;
	for (; *env; env++) {
		if (split(*env, prefix, &name, &len, &value) && *value && is_of_flag(name, len, flag))
			return value;
	}
	return NULL;
}

const char *options_env_value(char **env, const char *flag)
{
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		const char *value = value_of(env, prefixes[i], flag);
		if (value)
			return value;
	}
	return NULL;
}

/* As a flag is written: initial-cluster. False: too long to be one. */
static bool flag_of(const char *name, size_t len, char *ret, size_t cap)
{
	if (len >= cap)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (islower((unsigned char)name[i]))
			return false;
		ret[i] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
	}
	ret[len] = '\0';
	return true;
}

static bool is_other(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		size_t n = strlen(others[i]);
		if (others[i][n - 1] == '_' ? len > n && memcmp(name, others[i], n) == 0 : len == n && memcmp(name, others[i], n) == 0)
			return true;
	}
	return false;
}

/* One variable, of the given prefix. */
static bool take(struct options *o, const char *prefix, const char *name, size_t len, const char *value, bool given[OPTIONS_FLAGS_MAX],
		 const bool seen[OPTIONS_FLAGS_MAX], struct errmsg *em)
{
	struct errmsg why = { .text = "" };
	char flag[80];
	size_t index = SIZE_MAX;
	enum options_known known = flag_of(name, len, flag, sizeof(flag)) ? options_know(flag, len, &index) : OPTIONS_UNKNOWN;
	if (known == OPTIONS_UNKNOWN) {
		if (!is_other(name, len))
			options_warn(o, "an environment variable is no flag", name - strlen(prefix), len + strlen(prefix), "it has no effect");
		return true;
	}
	if (!*value)
		return true;
	if (index < OPTIONS_FLAGS_MAX && seen[index]) {
		errmsg_set(em, "%s%.*s is set, and so is --%s: give one of them", prefix, (int)len, name, flag);
		return false;
	}
	if (index < OPTIONS_FLAGS_MAX && given[index])
		return true;
	if (index < OPTIONS_FLAGS_MAX)
		given[index] = true;
	if (options_set(o, flag, len, value, &why))
		return true;
	errmsg_set(em, "%s%.*s: %s", prefix, (int)len, name, why.text);
	return false;
}

bool options_from_env(struct options *o, char **env, const bool seen[OPTIONS_FLAGS_MAX], struct errmsg *em)
{
	bool given[OPTIONS_FLAGS_MAX] = { false };
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		for (char **v = env; *v; v++) {
			const char *name, *value;
			size_t len;
			if (split(*v, prefixes[i], &name, &len, &value) && !take(o, prefixes[i], name, len, value, given, seen, em))
				return false;
		}
	}
	return true;
}
