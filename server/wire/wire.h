/* wire.h: sockets that gRPC takes for plain ones, though their bytes are not.
 *
 * gRPC's C core takes a descriptor from outside only when it is to speak plainly over it. So that nobody has to carry bytes between such a descriptor and
 * TLS, this program defines the four functions of libc through which gRPC works on a socket: recvmsg, sendmsg, shutdown and close. For a descriptor that was
 * attached they do what its owner says; for every other they are libc's.
 *
 * Whether gRPC's calls come here is the dynamic linker's affair, and plain bytes would go to the network if they did not. Ask wire_works() before the first
 * descriptor is given to gRPC: it has gRPC speak over a socket pair, and looks. */
#ifndef HOLDFAST_WIRE_H
#define HOLDFAST_WIRE_H

#include <stdbool.h>
#include <sys/socket.h>

/* Any thread, receive and send of one descriptor at a time as well. They use the descriptor by the wire_real_… below alone. */
struct wire_ops {
	ssize_t (*receive)(void *ctx, int fd, struct msghdr *msg);    /* as recvmsg with no flags */
	ssize_t (*send)(void *ctx, int fd, const struct msghdr *msg); /* as sendmsg with MSG_NOSIGNAL */
	void (*shutdown)(void *ctx, int fd);                          /* just before the socket is shut down for writing */
	void (*close)(void *ctx, int fd);                             /* just before it is closed */
	/* What is sent between them may go out at the end of it. Any thread, several at a time; either may come just after close. NULL: neither. */
	void (*cork)(void *ctx);
	void (*uncork)(void *ctx);
	void (*free)(void *ctx);                                      /* last of all. NULL: nothing to free */
};

struct wire;

/* From here on until it is closed. The caller owns fd, and nobody else uses it yet. False: it has too high a number. */
bool wire_attach(int fd, const struct wire_ops *ops, void *ctx);
/* The same socket has another number now, and `from` is about to be closed. Nothing happens when it is a plain one. False: too high. */
bool wire_move(int from, int to);

/* For those who have many things to send over a connection, and know its descriptor, though gRPC may close it meanwhile. NULL: it is a plain one, or gone. */
struct wire *wire_cork(int fd);
void wire_uncork(struct wire *w); /* each that was not NULL, once */
/* It may not be any more when this is told. */
bool wire_is_attached(int fd);

/* gRPC reads, writes and closes through here. Found out once, in a few milliseconds. Any thread. */
bool wire_works(void);

/* libc's. */
ssize_t wire_real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t wire_real_sendmsg(int fd, const struct msghdr *msg, int flags);
int wire_real_shutdown(int fd, int how);

#endif
