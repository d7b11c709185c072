/* options_values.c: values as they are written: addresses, numbers, durations, lists. None of them knows of whom it is. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "net/url.h"
#include "options_internal.h"

char *options_copy(const char *s, size_t len)
{
	char *c = mem_alloc(len + 1);
	memcpy(c, s, len);
	c[len] = '\0';
	return c;
}

void value_urls_free(struct url_list *l)
{
	while (l->len)
		free(l->urls[--l->len]);
}

bool value_add_url(struct url_list *l, const char *text, size_t len, struct errmsg *em)
{
	struct url u;
	char *url = options_copy(text, len);
	if (l->len == OPTIONS_URLS_MAX) {
		errmsg_set(em, "more than %d URLs", OPTIONS_URLS_MAX);
	} else if (!url_parse(url, &u) || !url_is_dialable(&u)) {
		errmsg_set(em, "'%s' is not of the form http://HOST:PORT or https://HOST:PORT", url);
	} else {
		while (len && !url_is_unix(&u) && url[len - 1] == '/')
			url[--len] = '\0';
		l->urls[l->len++] = url;
		return true;
	}
	free(url);
	return false;
}

bool value_urls(struct url_list *l, const char *value, struct errmsg *em)
{
	value_urls_free(l);
	for (const char *at = value; *at;) {
		size_t len = strcspn(at, ",");
		if (len && !value_add_url(l, at, len, em))
			return false;
		at += len + (at[len] == ',');
	}
	if (!l->len)
		errmsg_set(em, "no URL given");
	return l->len > 0;
}

bool value_number(uint64_t *ret, const char *value, uint64_t min, uint64_t max, struct errmsg *em)
{
	errno = 0;
	unsigned long long v = strtoull(value, NULL, 10);
	/* strtoull would also take spaces and signs, and read -1 as a very large number. */
	if (errno || !*value || value[strspn(value, "0123456789")]) {
		errmsg_set(em, "'%s' is not a number", value);
		return false;
	}
	if (v < min || v > max) {
		errmsg_set(em, "%llu is not within %llu..%llu", v, (unsigned long long)min, (unsigned long long)max);
		return false;
	}
	*ret = v;
	return true;
}

/* Go's durations: 1h30m, 500ms; the units that make sense here. */
bool value_parse_duration(const char *value, uint64_t *ret_ms)
{
	static const struct {
		const char *name;
		double ms;
	} units[] = { { "ms", 1 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 } };
	double total = 0;
	if (strcmp(value, "0") == 0) {
		*ret_ms = 0;
		return true;
	}
	if (!*value)
		return false;
	while (*value) {
		char *end;
		size_t i, digits = strspn(value, "0123456789.");
		double v = strtod(value, &end);
		if (digits == 0 || end != value + digits) /* strtod knows more numbers than we do */
			return false;
		for (i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
			if (strncmp(end, units[i].name, strlen(units[i].name)) == 0)
				break;
		}
		if (i == sizeof(units) / sizeof(units[0]))
			return false;
		total += v * units[i].ms;
		value = end + strlen(units[i].name);
	}
	if (!(total < 1e15))
		return false;
	*ret_ms = (uint64_t)total;
	return true;
}

bool value_duration(uint64_t *ret, const char *value, uint64_t min, uint64_t max, struct errmsg *em)
{
	if (!value_parse_duration(value, ret)) {
		errmsg_set(em, "'%s' is not a duration such as 500ms, 20s or 2h", value);
		return false;
	}
	if (*ret < min || *ret > max) {
		errmsg_set(em, "%s is not within %llums..%llums", value, (unsigned long long)min, (unsigned long long)max);
		return false;
	}
	return true;
}

bool value_bool(bool *ret, const char *value, struct errmsg *em)
{
	static const char *const yes[] = { "1", "t", "T", "true", "TRUE", "True" }, *const no[] = { "0", "f", "F", "false", "FALSE", "False" };
	for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
		if (strcmp(value, yes[i]) == 0 || strcmp(value, no[i]) == 0) {
			*ret = strcmp(value, yes[i]) == 0;
			return true;
		}
	}
	errmsg_set(em, "'%s' is neither 'true' nor 'false'", value);
	return false;
}

void value_replace(char **at, const char *value)
{
	free(*at);
	*at = options_copy(value, strlen(value));
}

void value_list_free(struct text_list *l)
{
	while (l->len)
		free(l->items[--l->len]);
}

bool value_list(struct text_list *l, const char *value, struct errmsg *em)
{
	value_list_free(l);
	for (const char *at = value; *at;) {
		size_t len = strcspn(at, ",");
		if (l->len == OPTIONS_URLS_MAX) {
			errmsg_set(em, "more than %d", OPTIONS_URLS_MAX);
			return false;
		}
		if (len)
			l->items[l->len++] = options_copy(at, len);
		at += len + (at[len] == ',');
	}
	return true;
}
