/* path.h: paths of nodes (holdfast.v1.Nodes): which byte strings are one, and what lies above.
 *
 * A path is "/" and one to PATH_DEPTH_MAX names joined by "/". A name is not empty, "." or "..", is UTF-8, and has no control characters. The path
 * is the node's key. */
#ifndef HOLDFAST_PATH_H
#define HOLDFAST_PATH_H

#include "base/slice.h"
#include "errors.h"

enum { PATH_LEN_MAX = 1024, PATH_DEPTH_MAX = 32 };

enum err path_check(struct slice path);         /* ERR_BAD_PATH; ERR_PATH_TOO_DEEP: also when it is too long */
enum err path_check_or_root(struct slice path); /* "/" too */
/* The path above, lent by `path`; of a name behind "/": "/". Empty: `path` is none (that is judged by its slashes alone). */
struct slice path_parent(struct slice path);
/* Whether `path` is `top` or below it. */
bool path_is_under(struct slice path, struct slice top);

#endif
