/* holdfast.h: libholdfast, the C client of the Holdfast lock service.
 *
 * A *client* is a set of endpoints, the connections to them, and one thread that does all the waiting. A *session* is your life as the cell sees it: locks,
 * leaderships and ephemeral nodes are bound to it, and go when it ends. The library keeps it alive, over lost connections and changes of leader, and tells you
 * in time when it cannot: a session is
 *
 *     SAFE ───── its lease clock ran out without an answer ────► JEOPARDY ───── grace period over, or the cell said so ────► EXPIRED
 *       ◄────────────────── renewed after all ──────────────────────┘
 *
 * and JEOPARDY is told before the cell could have ended the session: stop acting on its locks then. The lease clock starts when a keep-alive is sent, runs on
 * while the machine sleeps, and is read anew in hf_lock_token() and hf_session_remaining_ms(), so these are right even when the library's thread was held up.
 *
 * Rules that hold for every call, unless it says otherwise:
 *   - Any thread may call. Callbacks run on the client's thread, one at a time: they may start calls of the callback form, may not block, and may not call the
 *     blocking form (HF_INVALID).
 *   - What is handed in is borrowed for the call. What comes back by a ret_ is yours on HF_OK and untouched otherwise. What a callback is shown dies with its return.
 *   - Times are milliseconds. HF_FOREVER waits for as long as the session lives; 0 tries once.
 *   - HF_SESSION_LOST: the session is over; whatever was asked is not known to be done, and its locks are gone. Close it and open another.
 *   - HF_TIMEOUT of a write: it may still be done or not. Calls are sent again by the library, with an ID that makes it apply once.
 *   - Free what depends on a thing before the thing: locks and watches before their session, sessions before their client.
 * There is no global state: clients do not know of each other. */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef HF_API
#define HF_API __attribute__((visibility("default")))
#endif

#define HF_FOREVER UINT32_MAX

enum {
	HF_NAME_MAX = 4096,        /* bytes of a lock's or election's name */
	HF_PATH_MAX = 1024,        /* bytes of a node's path: "/" and 1 to 32 names joined by "/" */
	HF_VALUE_MAX = 64 * 1024,  /* bytes of a node's or leader's value */
	HF_CALLS_MAX = 4096        /* calls of one session that have no answer yet; more: HF_BUSY */
};

enum hf_code {
	HF_OK = 0,
	HF_TIMEOUT,      /* not within the time given */
	HF_CANCELED,     /* by hf_cancel, or the session was closed meanwhile */
	HF_SESSION_LOST, /* the session is over */
	HF_HELD,         /* a try: somebody else holds the lock */
	HF_NOT_FOUND,    /* no such node; nobody leads */
	HF_EXISTS,       /* there is such a node */
	HF_CONFLICT,     /* a condition does not hold: the node has another version, the leadership is over, the lock was asked for with another mode */
	HF_INVALID,      /* a malformed path, name or option, or a blocking call on the client's own thread */
	HF_DENIED,       /* not permitted */
	HF_BUSY,         /* a bound was reached, here or in the cell: too many calls, sessions, watches; or this session asks for that lock already */
	HF_UNAVAILABLE,  /* no replica could be reached, or there is no leader, for as long as it was tried */
	HF_FAILED        /* the cell said no for another reason; the text of the callback form tells */
};

/** A code in a few words; static. */
HF_API const char *hf_text(enum hf_code code);
/** "1.2.3"; static. */
HF_API const char *hf_version(void);

struct hf_client;
struct hf_session;
struct hf_lock;
struct hf_watch;

/** Bytes that are borrowed. */
struct hf_slice {
	const void *ptr;
	size_t len;
};

/* ---- clients ---- */

struct hf_client_options {
	/** "host:port,host:port,...", 1 to 32: any replicas of one cell; the more, the better. */
	const char *endpoints;
	/** TLS: NULL for none. PEM text, not files. ca alone checks the replicas; cert and key are ours. */
	const char *tls_ca, *tls_cert, *tls_key;
	/** The name in the replicas' certificates; NULL: the endpoint's host. */
	const char *tls_server_name;
	/** The user and password, while the cell asks for them; NULL: none. Tokens are fetched, and fetched again when they run out. */
	const char *user, *password;
};

/** Starts a client; nothing is connected yet.
 *  returns  HF_OK; HF_INVALID: no endpoints, too many, or a malformed one; a key without its certificate, a user without a password */
HF_API enum hf_code hf_client_new(const struct hf_client_options *options, struct hf_client **ret_client);
/** Ends the thread and the connections. All its sessions have been closed. NULL is fine. Not on the client's own thread. */
HF_API void hf_client_free(struct hf_client *client);

/* ---- sessions ---- */

enum hf_state {
	HF_OPENING = 0,
	HF_SAFE,     /* act */
	HF_JEOPARDY, /* stop acting: the cell may have ended the session by the time that you read this. Caches are empty, tokens read 0 */
	HF_EXPIRED,  /* over, for good; the reason says why */
	HF_CLOSING,
	HF_CLOSED    /* over, by hf_session_close */
};

enum hf_reason {
	HF_REASON_NONE = 0,
	HF_REASON_NO_ANSWER,  /* JEOPARDY: the lease clock ran out. EXPIRED: and the grace period */
	HF_REASON_EXPIRED,    /* the cell ended the session, for it was not renewed in time */
	HF_REASON_REVOKED,    /* somebody revoked its lease */
	HF_REASON_TAKEN_OVER, /* somebody else resumed it, again and again */
	HF_REASON_REFUSED,    /* the cell did not open or resume it */
	HF_REASON_CLOSED,     /* hf_session_close */
	HF_REASON_RELEASED,   /* of a lock: hf_unlock */
	HF_REASON_BROKEN      /* of a lock: its key is gone while the session lives: an operator broke the hold */
};

/** A reason in a few words; static. */
HF_API const char *hf_reason_text(enum hf_reason reason);

/** The state that the session is in from now on, and why. The last is HF_EXPIRED or HF_CLOSED. */
typedef void (*hf_state_callback)(void *arg, struct hf_session *session, enum hf_state state, enum hf_reason reason);

struct hf_session_options {
	/** Seconds; 0: 12. The cell may grant more. Renewed every third. */
	int64_t ttl_s;
	/** How long JEOPARDY lasts before the library gives up; 0: 45,000. */
	uint32_t grace_ms;
	/** Paths whose nodes, and all below, may be cached: NULL-terminated, at most 16; NULL: nothing is cached. */
	const char *const *cache_prefixes;
	/** At most so many values and lists cached; 0: 4,096; at most 10,000. The least recently used goes first. */
	uint32_t cache_max;
	/** For people who look at the cell; NULL: none. At most 256 bytes. */
	const char *name;
	/** Told each change of state, in order; NULL: not. JEOPARDY and EXPIRED mean that every lock is lost or may be. */
	hf_state_callback on_state;
	void *arg;
};

/** A value with a path. */
struct hf_node {
	const char *path;
	struct hf_slice value;
	int64_t version;         /* how often written since it was created; 0: there is no such node */
	int64_t create_revision; /* unique to this life of the node */
	int64_t mod_revision;    /* unique to this value */
	int64_t session;         /* whose it is; 0: not ephemeral */
};

/** A place in the queue of a lock or an election. */
struct hf_place {
	struct hf_slice key;
	int64_t session; /* its lease */
	int64_t token;   /* of its hold, present or to come */
	int held;
	int shared;
};

/** What a callback is told. Fields that a call has nothing for are zero. All dies with the callback's return, but the lock, which is the caller's. */
struct hf_result {
	enum hf_code code;
	const char *text;    /* why; never NULL */
	int64_t revision;    /* of the cell when it was answered */
	const struct hf_node *nodes;
	size_t nodes_len;    /* 1 for a single node */
	int more;            /* hf_list: there are more behind the last; hf_members: there may be */
	struct hf_lock *lock;
	const struct hf_place *places;
	size_t places_len;
	/** HF_HELD, HF_TIMEOUT of a lock: who holds it; 0 where it is not known. */
	int64_t holder_session, holder_token, holder_since_unix_ms, waiters;
};
typedef void (*hf_callback)(void *arg, const struct hf_result *result);

/** Opens a session.
 *  returns  HF_OK; HF_TIMEOUT: no replica answered within timeout_ms; HF_INVALID, HF_DENIED, HF_BUSY, HF_FAILED: the cell refused */
HF_API enum hf_code hf_session_open(struct hf_client *client, const struct hf_session_options *options, uint32_t timeout_ms, struct hf_session **ret_session);
/** The callback form: *ret_session is there at once and yours whatever the callback is told; before that nothing else may be asked of it but closing. */
HF_API enum hf_code hf_session_open_async(struct hf_client *client, const struct hf_session_options *options, uint32_t timeout_ms, hf_callback callback, void *arg,
					  struct hf_session **ret_session);

/** Where it is now; by a clock that is read now, even when the client's thread is late. */
HF_API enum hf_state hf_session_state(struct hf_session *session);
/** How long it is certain that the cell has not ended the session, from now; 0 when it is not SAFE. For those about to act: what takes longer may be too late. */
HF_API uint32_t hf_session_remaining_ms(struct hf_session *session);
/** Its lease, as the etcd API knows it; 0 before it is open. */
HF_API int64_t hf_session_id(struct hf_session *session);

/** Ends the session in the cell, with all that is bound to it, in one step; then frees it, whatever the result. Calls under way end with HF_CANCELED. Free its
 *  locks and watches before, or in the callbacks that tell of their end.
 *  returns  HF_OK: the cell has ended it; HF_TIMEOUT: not heard within timeout_ms, it ends when its TTL has passed; HF_SESSION_LOST: it was over already */
HF_API enum hf_code hf_session_close(struct hf_session *session, uint32_t timeout_ms);
/** The session may not be used any more; it is freed after the callback has returned. */
HF_API enum hf_code hf_session_close_async(struct hf_session *session, uint32_t timeout_ms, hf_callback callback, void *arg);

/* ---- locks ---- */

enum hf_lock_mode {
	HF_EXCLUSIVE = 0,
	HF_SHARED = 1
};

/** Once a lock: it is held no more, or may not be. Told at JEOPARDY of its session for no lock (hf_session_options.on_state tells that), but at EXPIRED. */
typedef void (*hf_lost_callback)(void *arg, struct hf_lock *lock, enum hf_reason reason);

struct hf_lock_options {
	enum hf_lock_mode mode;
	uint32_t timeout_ms;      /* 0 tries once, HF_FOREVER waits */
	hf_lost_callback on_lost; /* NULL: not told */
	void *arg;
};

/** Waits until the session holds the lock. One session asks for a lock once at a time.
 *  name     1..HF_NAME_MAX bytes
 *  options  NULL: exclusive, HF_FOREVER
 *  returns  HF_OK; HF_HELD, HF_TIMEOUT: not held, and not queued; HF_BUSY: this session asks for it or has it already; HF_CONFLICT: with another mode;
 *           HF_SESSION_LOST
 *  Holding is not proof: hand hf_lock_token() to whatever the lock guards (holdfast_fence.h). */
HF_API enum hf_code hf_lock(struct hf_session *session, struct hf_slice name, const struct hf_lock_options *options, struct hf_lock **ret_lock);
/** result.lock is yours, so there has to be a callback (HF_INVALID). *ret_call (may be NULL) is for hf_cancel. */
HF_API enum hf_code hf_lock_async(struct hf_session *session, struct hf_slice name, const struct hf_lock_options *options, hf_callback callback, void *arg,
				  uint64_t *ret_call);

/** The fencing token; 0 when the lock is lost, given up, or its session is not SAFE at this very moment. */
HF_API int64_t hf_lock_token(struct hf_lock *lock);
/** Why it is held no more; HF_REASON_NONE while it is. */
HF_API enum hf_reason hf_lock_lost(struct hf_lock *lock);

/** Gives the lock up and frees the handle, whatever the result. The token reads 0 from the start; the cell is told until it has acknowledged, or the session is over.
 *  returns  HF_OK: given up; HF_TIMEOUT: not acknowledged yet, and still being told; HF_SESSION_LOST: it went with the session */
HF_API enum hf_code hf_unlock(struct hf_lock *lock, uint32_t timeout_ms);
HF_API enum hf_code hf_unlock_async(struct hf_lock *lock, uint32_t timeout_ms, hf_callback callback, void *arg);

/* ---- elections ---- */

/** Waits until the session leads, and publishes `value` (an address, say) from then on. A leadership is a lock: hf_lock_token, hf_lock_lost, hf_unlock (which
 *  resigns). Options: mode is HF_EXCLUSIVE. Errors: as hf_lock. */
HF_API enum hf_code hf_campaign(struct hf_session *session, struct hf_slice name, struct hf_slice value, const struct hf_lock_options *options,
				struct hf_lock **ret_lock);
HF_API enum hf_code hf_campaign_async(struct hf_session *session, struct hf_slice name, struct hf_slice value, const struct hf_lock_options *options,
				      hf_callback callback, void *arg, uint64_t *ret_call);
/** Publishes another value. HF_CONFLICT: the leadership is over. */
HF_API enum hf_code hf_proclaim(struct hf_lock *leadership, struct hf_slice value, uint32_t timeout_ms);
HF_API enum hf_code hf_proclaim_async(struct hf_lock *leadership, struct hf_slice value, uint32_t timeout_ms, hf_callback callback, void *arg);

/** A node, owned; free with hf_value_free. Of a leader: path "", its value, create_revision (the token) and session. */
struct hf_value {
	struct hf_node node;
	int64_t revision; /* of the cell when this was so */
	int cached;       /* served from memory */
};
/** Frees what a call gave; NULL is fine. */
HF_API void hf_value_free(struct hf_value *value);

/** Who leads now. HF_NOT_FOUND: nobody does. */
HF_API enum hf_code hf_leader(struct hf_session *session, struct hf_slice name, uint32_t timeout_ms, struct hf_value **ret_leader);
HF_API enum hf_code hf_leader_async(struct hf_session *session, struct hf_slice name, uint32_t timeout_ms, hf_callback callback, void *arg);
/** Told who leads, then each new leader and each new value, in order; HF_NOT_FOUND when nobody does; last of all HF_SESSION_LOST, HF_CANCELED or another error. */
HF_API enum hf_code hf_observe(struct hf_session *session, struct hf_slice name, hf_callback callback, void *arg, struct hf_watch **ret_watch);
/** Owned; free with hf_places_free. */
struct hf_places {
	size_t len;
	int more; /* there may be more behind the last */
	const struct hf_place *at;
};
/** Frees what a call gave; NULL is fine. */
HF_API void hf_places_free(struct hf_places *places);
/** Who leads or holds, and who waits, in order; of a lock as well; at most 1,000 of them. Nobody is an empty list. */
HF_API enum hf_code hf_members(struct hf_session *session, struct hf_slice name, uint32_t timeout_ms, struct hf_places **ret_places);
HF_API enum hf_code hf_members_async(struct hf_session *session, struct hf_slice name, uint32_t timeout_ms, hf_callback callback, void *arg);

/* ---- nodes: values with a path ---- */

/** The node. Served from memory when it lies under one of the session's cache prefixes and is cached: never older than a completed write while the session is
 *  SAFE, and in under a microsecond; that there is no such node is cached as well.
 *  returns  HF_OK; HF_NOT_FOUND; HF_INVALID: a malformed path */
HF_API enum hf_code hf_get(struct hf_session *session, const char *path, uint32_t timeout_ms, struct hf_value **ret_value);
/** The callback may run before this returns, on the calling thread, when the value is in memory. */
HF_API enum hf_code hf_get_async(struct hf_session *session, const char *path, uint32_t timeout_ms, hf_callback callback, void *arg);

/** Conditions of writes. */
enum { HF_ANY_VERSION = -1 };

/** Writes a node; creates it when there is none, and if_version is HF_ANY_VERSION or 0.
 *  if_version   the version it must have now: compare-and-set; 0: there must be none; HF_ANY_VERSION: any
 *  ret_version  may be NULL; the version it has now
 *  returns      HF_OK; HF_CONFLICT: another version, nothing was changed; HF_NOT_FOUND; HF_INVALID */
HF_API enum hf_code hf_set(struct hf_session *session, const char *path, struct hf_slice value, int64_t if_version, uint32_t timeout_ms, int64_t *ret_version);
HF_API enum hf_code hf_set_async(struct hf_session *session, const char *path, struct hf_slice value, int64_t if_version, uint32_t timeout_ms, hf_callback callback,
				 void *arg);

enum hf_create_flags {
	HF_EPHEMERAL = 1, /* ends with the session */
	HF_SEQUENTIAL = 2 /* a rising number is put behind the path */
};
/** Creates a node. ret_path: may be NULL; the path it has, for hf_string_free. HF_EXISTS: there is one; HF_INVALID: a malformed path, a value above
 *  HF_VALUE_MAX; HF_EPHEMERAL before the session is open. */
HF_API enum hf_code hf_create(struct hf_session *session, const char *path, struct hf_slice value, unsigned int flags, uint32_t timeout_ms, char **ret_path);
HF_API enum hf_code hf_create_async(struct hf_session *session, const char *path, struct hf_slice value, unsigned int flags, uint32_t timeout_ms, hf_callback callback,
				    void *arg);
/** Frees what a call gave; NULL is fine. */
HF_API void hf_string_free(char *string);

/** Deletes a node. HF_NOT_FOUND; HF_CONFLICT: another version. */
HF_API enum hf_code hf_delete(struct hf_session *session, const char *path, int64_t if_version, uint32_t timeout_ms);
HF_API enum hf_code hf_delete_async(struct hf_session *session, const char *path, int64_t if_version, uint32_t timeout_ms, hf_callback callback, void *arg);

/** Owned; free with hf_list_free. */
struct hf_list {
	size_t len;
	int more; /* there are more behind the last */
	const struct hf_node *at;
};
/** Frees what a call gave; NULL is fine. */
HF_API void hf_list_free(struct hf_list *list);
/** The children of a node, by their bytes, without values; at most 1,000. Cached like values. */
HF_API enum hf_code hf_list(struct hf_session *session, const char *path, uint32_t timeout_ms, struct hf_list **ret_list);
HF_API enum hf_code hf_list_async(struct hf_session *session, const char *path, uint32_t timeout_ms, hf_callback callback, void *arg);

struct hf_cache_stats {
	uint64_t hits, misses, invalidations;
	uint64_t emptied;       /* times that the whole cache was emptied */
	uint64_t entries;
	uint64_t oldest_ms;     /* how long ago the oldest cached value was fetched */
	uint64_t hit_age_ms;    /* sum over hits of how long ago the value had been fetched: by hits, the mean age */
};
/** What the session's cache has done: the hit rate is hits by hits and misses; only what may be cached counts. */
HF_API void hf_cache_stats(struct hf_session *session, struct hf_cache_stats *ret_stats);

/* ---- watches ---- */

enum hf_watch_kind {
	HF_WATCH_VALUE = 0,   /* the node is created, changed or deleted */
	HF_WATCH_CHILDREN = 1 /* a child is created or deleted */
};
enum hf_change { HF_CHANGED = 0, HF_DELETED = 1, HF_CHILDREN_CHANGED = 2 };

/** path and revision of the change; code is HF_OK; or, when the watch will not fire any more, HF_DENIED (the session's user may not read the node any more),
 *  HF_SESSION_LOST or HF_CANCELED. */
typedef void (*hf_watch_callback)(void *arg, struct hf_watch *watch, enum hf_code code, enum hf_change change, const char *path, int64_t revision);

/** Looks at a node and arms a watch in the same step: nothing slips in between. The callback is called once, at the first change after what *ret_value shows; over
 *  lost connections and changes of leader too.
 *  ret_value  may be NULL; the present value (version 0: there is no such node); of children: NULL
 *  ret_watch  yours until hf_watch_stop, before or after it has fired
 *  returns    HF_OK: armed; else not */
HF_API enum hf_code hf_watch(struct hf_session *session, const char *path, enum hf_watch_kind kind, uint32_t timeout_ms, hf_watch_callback callback, void *arg,
			     struct hf_value **ret_value, struct hf_watch **ret_watch);
/** armed: told when it is armed, with the present node or children; it may come after the watch's first firing has been queued, never after it was told. */
HF_API enum hf_code hf_watch_async(struct hf_session *session, const char *path, enum hf_watch_kind kind, uint32_t timeout_ms, hf_watch_callback callback,
				   hf_callback armed, void *arg, struct hf_watch **ret_watch);
/** Told the present value and then each later one: some may be skipped, but never that there is a newer one. HF_NOT_FOUND while there is no such node; last of
 *  all HF_SESSION_LOST, HF_CANCELED or another error. Re-arms itself. */
HF_API enum hf_code hf_follow(struct hf_session *session, const char *path, hf_callback callback, void *arg, struct hf_watch **ret_watch);
/** Ends a watch, an hf_follow or an hf_observe and frees it. When called on another thread than the client's, no callback of it runs once this has returned. */
HF_API void hf_watch_stop(struct hf_watch *watch);

/** Ends a waiting hf_lock_async or hf_campaign_async: its callback is told HF_CANCELED, unless it has been told already. */
HF_API void hf_cancel(struct hf_session *session, uint64_t call);

#ifdef __cplusplus
}
#endif

#endif
