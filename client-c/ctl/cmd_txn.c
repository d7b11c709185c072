/* cmd_txn.c: txn: a transaction from standard input. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "kv.h"
#include "txn.h"

enum { INPUT_MAX = 64 << 20 };

static void print_responses(struct ctl *c, const Etcdserverpb__TxnResponse *r)
{
	for (size_t i = 0; i < r->n_responses; i++) {
		const Etcdserverpb__ResponseOp *op = r->responses[i];
		if (op->response_case == ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE) {
			for (size_t k = 0; k < op->response_range->n_kvs; k++)
				kv_print(c, op->response_range->kvs[k], true, true);
		} else if (op->response_case == ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_PUT) {
			out_printf("OK\n");
		} else if (op->response_case == ETCDSERVERPB__RESPONSE_OP__RESPONSE_RESPONSE_DELETE_RANGE) {
			out_printf("%" PRId64 "\n", op->response_delete_range->deleted);
		}
	}
}

static void print_txn(struct ctl *c, const ProtobufCMessage *reply)
{
	const Etcdserverpb__TxnResponse *r = (const Etcdserverpb__TxnResponse *)reply;
	out_printf("%s\n", r->succeeded ? "SUCCESS" : "FAILURE");
	print_responses(c, r);
}

int command_txn(struct ctl *c)
{
	Etcdserverpb__TxnRequest r;
	struct buf text = { .ptr = NULL };
	struct arena a;
	struct errmsg em;
	int code;
	if (isatty(STDIN_FILENO))
		fprintf(stderr, "compares, a blank line, what to do then, a blank line, what to do else; ends with Ctrl-D\n");
	arena_init(&a);
	code = ctl_read_input(&text, INPUT_MAX);
	if (!code && !txn_parse(buf_view(&text), c->args.hex, &a, &r, &em)) {
		ctl_error("standard input: %s", em.text);
		code = EXIT_USAGE;
	}
	if (!code) {
		/* One with reads alone may be asked again. */
		bool reads = true;
		for (size_t i = 0; i < r.n_success + r.n_failure; i++) {
			const Etcdserverpb__RequestOp *op = i < r.n_success ? r.success[i] : r.failure[i - r.n_success];
			reads &= op->request_case == ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE;
		}
		code = ctl_run(c, METHOD_KV_TXN, &r.base, reads ? ASK_AGAIN : ASK_ONCE, print_txn, "carry out the transaction");
	}
	arena_deinit(&a);
	buf_free(&text);
	return code;
}
