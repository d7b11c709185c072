/* lock.c: hold a lock and hand its token to what the lock guards: here a table in SQLite.
 *
 *   lock ENDPOINTS FILE        cc lock.c $(pkg-config --cflags --libs holdfast holdfast-fence-sqlite sqlite3) */
#include <holdfast.h>
#include <holdfast_fence.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static void on_state(void *arg, struct hf_session *session, enum hf_state state, enum hf_reason reason)
{
	(void)arg, (void)session;
	if (state == HF_JEOPARDY)
		fprintf(stderr, "stop acting: %s\n", hf_reason_text(reason));
	else if (state == HF_EXPIRED)
		fprintf(stderr, "the session is over: %s\n", hf_reason_text(reason));
}

/* The check first, in the same transaction: it raises the mark, and from then on nobody who held the lock before changes anything. */
static enum hf_fence_code deposit(sqlite3 *db, int64_t token)
{
	enum hf_fence_code c;
	if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL))
		return HF_FENCE_BUSY;
	c = hf_fence_sqlite(db, "accounts", 8, HF_FENCE_EXCLUSIVE, token);
	if (!c && sqlite3_exec(db, "UPDATE accounts SET balance = balance + 10", NULL, NULL, NULL))
		c = HF_FENCE_FAILED;
	sqlite3_exec(db, c ? "ROLLBACK" : "COMMIT", NULL, NULL, NULL);
	return c;
}

int main(int argc, char **argv)
{
	struct hf_client_options client_options = { .endpoints = argc > 1 ? argv[1] : "127.0.0.1:2379" };
	struct hf_session_options session_options = { .on_state = on_state, .name = "example" };
	struct hf_slice name = { "accounts", 8 };
	struct hf_client *client;
	struct hf_session *session;
	struct hf_lock *lock;
	enum hf_code c;
	sqlite3 *db;

	if (sqlite3_open(argc > 2 ? argv[2] : ":memory:", &db) || hf_fence_sqlite_init(db) ||
	    sqlite3_exec(db, "CREATE TABLE IF NOT EXISTS accounts (balance INTEGER); INSERT INTO accounts VALUES (0)", NULL, NULL, NULL)) {
		fprintf(stderr, "accounts: %s\n", sqlite3_errmsg(db));
		return 1;
	}
	c = hf_client_new(&client_options, &client);
	if (c) {
		fprintf(stderr, "endpoints: %s\n", hf_text(c));
		return 1;
	}
	c = hf_session_open(client, &session_options, 10000, &session);
	if (c) {
		fprintf(stderr, "session: %s\n", hf_text(c));
		hf_client_free(client);
		return 1;
	}
	c = hf_lock(session, name, NULL, &lock); /* waits */
	if (!c) {
		int64_t token = hf_lock_token(lock);
		printf("held, with a token: %s\n", token > 0 ? "yes" : "no");
		printf("deposit: %s\n", hf_fence_text(deposit(db, token)));
		printf("an older one's deposit: %s\n", hf_fence_text(deposit(db, token - 1)));
		c = hf_unlock(lock, 5000);
		printf("given up: %s\n", hf_text(c));
	}
	printf("closed: %s\n", hf_text(hf_session_close(session, 5000)));
	hf_client_free(client);
	sqlite3_close(db);
	return c ? 1 : 0;
}
