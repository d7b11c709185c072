/* details.c: see details.h. */
#include "details.h"

#include "holdfast/v1.pb-c.h"

const ProtobufCMessageDescriptor *details_descriptor(enum err e)
{
	switch (e) {
	case ERR_UNHEALTHY:
	case ERR_MEMBER_NOT_ENOUGH_STARTED:
	case ERR_LEARNER_NOT_READY:
		return &holdfast__v1__member_refusal__descriptor;
	default:
		return &holdfast__v1__lock_refusal__descriptor;
	}
}
