/* details.h: which message travels in the status details of an error. */
#ifndef HOLDFAST_DETAILS_H
#define HOLDFAST_DETAILS_H

#include <protobuf-c/protobuf-c.h>

#include "errors.h"

const ProtobufCMessageDescriptor *details_descriptor(enum err e);

#endif
