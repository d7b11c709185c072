/* frame.h: several messages for a peer in one gRPC message, since each gRPC message costs about as much as 10 KB of bytes.
 *
 * A frame is messages one after the other, each a length (32 bits, little-endian) and that many bytes. */
#ifndef HOLDFAST_NET_FRAME_H
#define HOLDFAST_NET_FRAME_H

#include "base/list.h"
#include "rpc/rpc.h"

#define FRAME_BYTES (256U * 1024)              /* a frame takes no further message once it has so many; one message may be larger */
#define FRAME_MESSAGE_MAX (16U * 1024 * 1024)  /* a larger message is not sent */
#define FRAME_MAX (FRAME_MESSAGE_MAX * 2 + FRAME_BYTES * 2) /* what a receiver must take: the last two may be an ordinary and a bulk message */

/* Of outbox_items; frees them. grpc_byte_buffer_destroy() the result. */
grpc_byte_buffer *frame_pack_take(struct list *items);
/* Takes the first message off *rest. False: nothing whole is left there, which is an error when bytes are. */
bool frame_next(struct slice *rest, struct slice *ret_message);

#endif
