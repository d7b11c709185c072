/* http.h: the one place that includes h2o, as Debian builds it: with its own event loop. */
#ifndef HOLDFAST_GATEWAY_HTTP_H
#define HOLDFAST_GATEWAY_HTTP_H

#ifndef H2O_USE_LIBUV
#define H2O_USE_LIBUV 0
#endif
#include <h2o.h>

#endif
