/* commands.c: the table of all commands: what they take, what they do, in words and in code. Help, the man page and the completion are made from it. */
#include "ctl.h"

#define FLAGS(...) (const enum flag_id[]){ __VA_ARGS__, FLAG_COUNT }

const struct command commands[] = {
	{ .name = "lock", .usage = "NAME", .min = 1, .max = 1, .runs = true, .function = command_lock,
	  .summary = "hold a lock, while COMMAND runs or until interrupted",
	  .flags = FLAGS(FLAG_SHARED, FLAG_TRY, FLAG_WAIT, FLAG_TTL),
	  .text = "Waits for the lock NAME, holds it while COMMAND runs, and releases it. Without\n"
		  "COMMAND it prints what it holds and holds it until SIGINT, SIGTERM or SIGHUP.\n"
		  "\n"
		  "The lock is held by a lease that is renewed every third of its --ttl. COMMAND\n"
		  "never outlives our own view of the lease's end: it gets SIGTERM a quarter of\n"
		  "the TTL (at most 5s) before it, and SIGKILL at the end, with all that it\n"
		  "started. When the cell says that the hold is over (its lease was revoked, or\n"
		  "it was broken by an operator), SIGKILL comes at once.\n"
		  "\n"
		  "COMMAND finds HOLDFAST_LOCK (the name), HOLDFAST_TOKEN (the fencing token, a\n"
		  "decimal number that rises with every grant of this lock) and HOLDFAST_LEASE\n"
		  "(the lease's ID, hexadecimal) in its environment. Hand the token to whatever\n"
		  "the lock guards, which should refuse lower ones: no process can know that it\n"
		  "has not been stopped for a while.\n"
		  "\n"
		  "Ends with COMMAND's own code, or 128 and the number of the signal that ended\n"
		  "it. It also stops, and releases, when the process that started it ends.",
	  .examples = "# one backup at a time, wherever it is started\n"
		      "holdfastctl lock backup -- /usr/local/bin/backup --full\n"
		      "# only if nobody else does it\n"
		      "holdfastctl lock nightly --try -- ./nightly.sh || [ $? = 124 ]\n"
		      "# wait a minute at most; readers share\n"
		      "holdfastctl lock config --shared --wait 1m -- ./read-config\n"
		      "# hold it by hand, until Ctrl-C\n"
		      "holdfastctl lock maintenance --ttl 30s" },
	{ .name = "elect", .usage = "NAME [VALUE]", .min = 1, .max = 2, .runs = true, .function = command_elect,
	  .summary = "be the leader of an election, or observe who is",
	  .flags = FLAGS(FLAG_OBSERVE, FLAG_TRY, FLAG_WAIT, FLAG_TTL, FLAG_EVENTS),
	  .text = "Campaigns in the election NAME, publishes VALUE once it leads, and leads while\n"
		  "COMMAND runs, or until interrupted; then it resigns. Everything that is said\n"
		  "of lock holds here too. COMMAND finds HOLDFAST_ELECTION, HOLDFAST_TOKEN and\n"
		  "HOLDFAST_LEASE.\n"
		  "\n"
		  "With --observe it prints the present leader, then each new one and each new\n"
		  "value, and 'vacant' when nobody leads.",
	  .examples = "holdfastctl elect scheduler \"$HOSTNAME\" -- ./scheduler\n"
		      "holdfastctl elect --observe scheduler" },

	{ .name = "locks list", .usage = "[PREFIX]", .min = 0, .max = 1, .function = command_locks_list,
	  .summary = "who holds locks, and who waits for them",
	  .text = "A line each, in the order of the queue: the lock's name, whether it is held or\n"
		  "waited for, mode, fencing token, lease, since when, and from where. Elections\n"
		  "are locks too. Shorter names come first.",
	  .examples = "holdfastctl locks list\n"
		      "holdfastctl locks list jobs/ -o table" },
	{ .name = "locks show", .usage = "NAME", .min = 1, .max = 1, .function = command_locks_show,
	  .summary = "who holds one lock, and who waits for it",
	  .text = "As locks list, of this one lock. Prints nothing when nobody holds it.",
	  .examples = "holdfastctl locks show backup" },
	{ .name = "locks verify", .usage = "NAME TOKEN", .min = 2, .max = 2, .function = command_locks_verify,
	  .summary = "whether a fencing token is that of a hold which is there now",
	  .text = "Linearizable. Ends with 0 when it is, and with 123 when it is not (any more).",
	  .examples = "holdfastctl locks verify backup 1842 && echo still mine" },
	{ .name = "locks break", .usage = "NAME [TOKEN]", .min = 1, .max = 2, .function = command_locks_break,
	  .summary = "end somebody else's hold: an operator's act",
	  .text = "Ends the hold with this token. Without TOKEN, the only hold there is at the\n"
		  "moment; when several share the lock, they are listed instead. The holder is not\n"
		  "asked: a lock command of holdfastctl ends its COMMAND at once, others may not\n"
		  "notice, so what the lock guards should check tokens.",
	  .examples = "holdfastctl locks break backup\n"
		      "holdfastctl locks break backup 1842" },

	{ .name = "get", .usage = "KEY [RANGE_END]", .min = 1, .max = 2, .function = command_get,
	  .summary = "read a key or a range",
	  .flags = FLAGS(FLAG_PREFIX, FLAG_FROM_KEY, FLAG_LIMIT, FLAG_REV, FLAG_SORT, FLAG_ORDER, FLAG_KEYS_ONLY, FLAG_VALUES_ONLY, FLAG_COUNT_ONLY,
			 FLAG_LOCAL),
	  .text = "Prints each key and its value on a line of its own. With RANGE_END: every key\n"
		  "from KEY up to but not including it. A key that is not there prints nothing.",
	  .examples = "holdfastctl get color\n"
		      "holdfastctl get config/ --prefix --keys-only\n"
		      "holdfastctl get \"\" --prefix --count-only\n"
		      "holdfastctl get color --rev 7 --values-only\n"
		      "holdfastctl get config/ --prefix -o json" },
	{ .name = "put", .usage = "KEY [VALUE]", .min = 1, .max = 2, .function = command_put,
	  .summary = "write a key",
	  .flags = FLAGS(FLAG_LEASE, FLAG_PREV_KV, FLAG_IGNORE_VALUE, FLAG_IGNORE_LEASE),
	  .text = "Without VALUE, or with '-', the value is standard input, less its last newline.",
	  .examples = "holdfastctl put color blue\n"
		      "holdfastctl put config/app - < app.conf\n"
		      "holdfastctl put alive yes --lease 694d81417acd0a05\n"
		      "# a value that begins with a dash\n"
		      "holdfastctl put offset -- -5" },
	{ .name = "del", .usage = "KEY [RANGE_END]", .min = 1, .max = 2, .function = command_del,
	  .summary = "delete a key or a range",
	  .flags = FLAGS(FLAG_PREFIX, FLAG_FROM_KEY, FLAG_PREV_KV),
	  .text = "Prints how many keys were deleted, which may be none.",
	  .examples = "holdfastctl del color\n"
		      "holdfastctl del config/ --prefix" },
	{ .name = "txn", .usage = "", .min = 0, .max = 0, .function = command_txn,
	  .summary = "compare, and do one thing or another, at once",
	  .text = "Reads three parts from standard input, with a blank line between them:\n"
		  "compares, what to do when all are true, what to do otherwise. Each may be\n"
		  "empty.\n"
		  "\n"
		  "  TARGET(\"KEY\") RELATION \"VALUE\"    TARGET: value, version, create, mod, lease\n"
		  "                                   RELATION: = != < >\n"
		  "  put KEY VALUE [--lease=LEASE]\n"
		  "  get KEY [RANGE_END] [--prefix]\n"
		  "  del KEY [RANGE_END] [--prefix]\n"
		  "\n"
		  "Words with blanks stand in double quotes, in which \\\" \\\\ \\n \\t \\r \\xHH are\n"
		  "escapes. Prints SUCCESS or FAILURE, then what each operation has to say.",
	  .examples = "# create the key only if it is not there\n"
		      "printf 'version(\"a\") = \"0\"\\n\\nput a 1\\n\\nget a\\n' | holdfastctl txn" },
	{ .name = "watch", .usage = "KEY [RANGE_END]", .min = 1, .max = 2, .function = command_watch,
	  .summary = "print every change of a key or a range",
	  .flags = FLAGS(FLAG_PREFIX, FLAG_FROM_KEY, FLAG_REV, FLAG_PREV_KV, FLAG_ONLY, FLAG_EVENTS, FLAG_PROGRESS),
	  .text = "Prints PUT or DELETE, the key and the value, a line each; with --prev-kv the\n"
		  "pair that was there before comes first. Goes on through the loss of a replica\n"
		  "without losing or repeating an event. Ends when interrupted, after --events,\n"
		  "or with an error when the history it needs is compacted.",
	  .examples = "holdfastctl watch config/ --prefix\n"
		      "holdfastctl watch color --rev 1 --events 3 -o json" },
	{ .name = "compact", .usage = "REVISION", .min = 1, .max = 1, .function = command_compact,
	  .summary = "forget history below a revision",
	  .flags = FLAGS(FLAG_PHYSICAL),
	  .text = "Reads and watches below REVISION are refused afterwards.",
	  .examples = "holdfastctl compact 1200" },

	{ .name = "lease grant", .usage = "TTL", .min = 1, .max = 1, .function = command_lease_grant,
	  .summary = "make a lease",
	  .flags = FLAGS(FLAG_ID),
	  .text = "TTL is a duration, or a number of seconds. Prints its ID in hexadecimal, and\n"
		  "the TTL that was granted, which may be longer.",
	  .examples = "holdfastctl lease grant 30s" },
	{ .name = "lease revoke", .usage = "LEASE", .min = 1, .max = 1, .function = command_lease_revoke,
	  .summary = "end a lease and delete its keys",
	  .text = "What is held with it (locks, elections) is released.",
	  .examples = "holdfastctl lease revoke 694d81417acd0a05" },
	{ .name = "lease keep-alive", .usage = "LEASE", .min = 1, .max = 1, .function = command_lease_keep_alive,
	  .summary = "renew a lease, again and again",
	  .flags = FLAGS(FLAG_ONCE),
	  .text = "Renews it every third of its TTL until interrupted, on whichever replica\n"
		  "answers. Ends with 1 when the lease has ended.",
	  .examples = "holdfastctl lease keep-alive 694d81417acd0a05\n"
		      "holdfastctl lease keep-alive 694d81417acd0a05 --once" },
	{ .name = "lease ttl", .usage = "LEASE", .min = 1, .max = 1, .function = command_lease_ttl,
	  .summary = "how long a lease still lives",
	  .flags = FLAGS(FLAG_KEYS),
	  .text = "An ID that is not known is that of a lease that has ended.",
	  .examples = "holdfastctl lease ttl 694d81417acd0a05 --keys" },
	{ .name = "lease list", .usage = "", .min = 0, .max = 0, .function = command_lease_list,
	  .summary = "list all leases",
	  .text = "One ID a line, in hexadecimal.",
	  .examples = "holdfastctl lease list" },

	{ .name = "member list", .usage = "", .min = 0, .max = 0, .function = command_member_list,
	  .summary = "list the members of the cell",
	  .flags = FLAGS(FLAG_LOCAL),
	  .text = "A line each: ID, state, name, peer URLs, client URLs, whether it is a learner.",
	  .examples = "holdfastctl member list -o table" },
	{ .name = "member add", .usage = "PEER-URL...", .min = 1, .max = 16, .function = command_member_add,
	  .summary = "add a member, as a voter or a learner",
	  .flags = FLAGS(FLAG_LEARNER),
	  .text = "Prints with which flags it is to be started. A voter counts towards quorums\n"
		  "once it has caught up, and not before: a wrong address harms nothing, and is\n"
		  "removed again.",
	  .examples = "holdfastctl member add http://10.0.0.4:2380 --learner" },
	{ .name = "member remove", .usage = "ID", .min = 1, .max = 1, .function = command_member_remove,
	  .summary = "remove a member for good",
	  .text = "It stops by itself, and its ID never comes back; its address may. Refused, with\n"
		  "the reason, when those left that are heard would be no quorum. A leader hands\n"
		  "the lead over first.",
	  .examples = "holdfastctl member remove 8e9e05c52164694d" },
	{ .name = "member update", .usage = "ID PEER-URL...", .min = 2, .max = 16, .function = command_member_update,
	  .summary = "tell the cell a member's new peer URLs",
	  .text = "The others connect to it there from now on. Restart it with these URLs.",
	  .examples = "holdfastctl member update 8e9e05c52164694d http://10.0.0.7:2380" },
	{ .name = "member promote", .usage = "ID", .min = 1, .max = 1, .function = command_member_promote,
	  .summary = "make a learner a voter",
	  .text = "Refused until it has caught up: how far behind it is, and when it was last\n"
		  "heard, is told.",
	  .examples = "holdfastctl member promote 8e9e05c52164694d" },
	{ .name = "move-leader", .usage = "ID", .min = 1, .max = 1, .function = command_move_leader,
	  .summary = "hand the lead over to another voter",
	  .text = "Finds out which of the endpoints leads, and asks that one.",
	  .examples = "holdfastctl move-leader 8e9e05c52164694d --endpoints a:2379,b:2379,c:2379" },
	{ .name = "endpoint status", .usage = "", .min = 0, .max = 0, .function = command_endpoint_status,
	  .summary = "what each endpoint says of itself",
	  .flags = FLAGS(FLAG_CLUSTER),
	  .text = "Asks every endpoint by itself. Ends with an error when one did not answer.",
	  .examples = "holdfastctl endpoint status --cluster -o table" },
	{ .name = "endpoint health", .usage = "", .min = 0, .max = 0, .function = command_endpoint_health,
	  .summary = "whether each endpoint can serve",
	  .flags = FLAGS(FLAG_CLUSTER),
	  .text = "Each endpoint does a linearizable read: it is connected to a leader that has a\n"
		  "quorum. Ends with an error when one did not.",
	  .examples = "holdfastctl endpoint health --endpoints a:2379,b:2379,c:2379 --timeout 2s" },
	{ .name = "endpoint hashkv", .usage = "", .min = 0, .max = 0, .function = command_endpoint_hashkv,
	  .summary = "a hash of each endpoint's keys, to compare",
	  .flags = FLAGS(FLAG_CLUSTER, FLAG_REV),
	  .text = "Replicas that agree on the history up to --rev agree on the hash.",
	  .examples = "holdfastctl endpoint hashkv --cluster --rev 1200" },

	{ .name = "auth enable", .usage = "", .min = 0, .max = 0, .function = command_auth_enable,
	  .summary = "ask everybody who he is, from now on",
	  .text = "There must be a user root that has the role root.",
	  .examples = "holdfastctl user add root && holdfastctl user grant-role root root\n"
		      "holdfastctl auth enable" },
	{ .name = "auth disable", .usage = "", .min = 0, .max = 0, .function = command_auth_disable,
	  .summary = "let everybody do everything again",
	  .text = "Users and roles stay as they are.",
	  .examples = "holdfastctl --user root auth disable" },
	{ .name = "auth status", .usage = "", .min = 0, .max = 0, .function = command_auth_status,
	  .summary = "whether authentication is on",
	  .text = "And the revision of users and roles, which rises with each change of them.",
	  .examples = "holdfastctl --user root auth status" },
	{ .name = "user add", .usage = "NAME[:PASSWORD]", .min = 1, .max = 1, .function = command_user_add,
	  .summary = "add a user",
	  .flags = FLAGS(FLAG_NO_PASSWORD),
	  .text = "The password is asked for twice, or is the first line of standard input when\n"
		  "that is no terminal. On the command line others may see it.",
	  .examples = "holdfastctl --user root user add alice\n"
		      "holdfastctl --user root user add build < password.txt\n"
		      "# known by the common name of a certificate alone\n"
		      "holdfastctl --user root user add backup --no-password" },
	{ .name = "user delete", .usage = "NAME", .min = 1, .max = 1, .function = command_user_delete,
	  .summary = "delete a user",
	  .text = "His tokens are good no more, and his watches end.",
	  .examples = "holdfastctl --user root user delete alice" },
	{ .name = "user get", .usage = "NAME", .min = 1, .max = 1, .function = command_user_get,
	  .summary = "which roles a user has",
	  .text = "Everybody may ask about himself.",
	  .examples = "holdfastctl --user alice user get alice" },
	{ .name = "user list", .usage = "", .min = 0, .max = 0, .function = command_user_list,
	  .summary = "list all users",
	  .text = "A name a line.",
	  .examples = "holdfastctl --user root user list" },
	{ .name = "user passwd", .usage = "NAME[:PASSWORD]", .min = 1, .max = 1, .function = command_user_passwd,
	  .summary = "change a user's password",
	  .text = "It is asked for as by user add. His tokens are good no more.",
	  .examples = "holdfastctl --user root user passwd alice" },
	{ .name = "user grant-role", .usage = "NAME ROLE", .min = 2, .max = 2, .function = command_user_grant_role,
	  .summary = "give a user a role",
	  .text = "The role root may everything; it need not be added.",
	  .examples = "holdfastctl --user root user grant-role alice jobs" },
	{ .name = "user revoke-role", .usage = "NAME ROLE", .min = 2, .max = 2, .function = command_user_revoke_role,
	  .summary = "take a role from a user",
	  .text = "Watches that he may have no more end.",
	  .examples = "holdfastctl --user root user revoke-role alice jobs" },
	{ .name = "role add", .usage = "NAME", .min = 1, .max = 1, .function = command_role_add,
	  .summary = "add a role",
	  .text = "It permits nothing yet.",
	  .examples = "holdfastctl --user root role add jobs" },
	{ .name = "role delete", .usage = "NAME", .min = 1, .max = 1, .function = command_role_delete,
	  .summary = "delete a role",
	  .text = "All users lose it.",
	  .examples = "holdfastctl --user root role delete jobs" },
	{ .name = "role get", .usage = "NAME", .min = 1, .max = 1, .function = command_role_get,
	  .summary = "what a role permits",
	  .text = "Everybody may ask about a role that he has.",
	  .examples = "holdfastctl --user root role get jobs" },
	{ .name = "role list", .usage = "", .min = 0, .max = 0, .function = command_role_list,
	  .summary = "list all roles",
	  .text = "A name a line.",
	  .examples = "holdfastctl --user root role list" },
	{ .name = "role grant-permission", .usage = "ROLE TYPE KEY [RANGE_END]", .min = 3, .max = 4, .function = command_role_grant_permission,
	  .summary = "let a role read or write keys",
	  .flags = FLAGS(FLAG_PREFIX, FLAG_FROM_KEY),
	  .text = "TYPE is read, write or readwrite. Replaces what it said of the same range. A\n"
		  "lock NAME needs readwrite on NAME/ with --prefix.",
	  .examples = "holdfastctl --user root role grant-permission jobs readwrite jobs/ --prefix\n"
		      "holdfastctl --user root role grant-permission jobs read config" },
	{ .name = "role revoke-permission", .usage = "ROLE KEY [RANGE_END]", .min = 2, .max = 3, .function = command_role_revoke_permission,
	  .summary = "take back what a role permits",
	  .flags = FLAGS(FLAG_PREFIX, FLAG_FROM_KEY),
	  .text = "The range must be one that was granted, not a part of it.",
	  .examples = "holdfastctl --user root role revoke-permission jobs jobs/ --prefix" },
	{ .name = "snapshot save", .usage = "FILE", .min = 1, .max = 1, .function = command_snapshot_save,
	  .summary = "write a backup of the cell to a file",
	  .text = "The backup holds all that was acknowledged before. FILE appears when it is\n"
		  "whole and its checksum is right, never before. Look at it, and make a new cell\n"
		  "of it, with holdfastd snapshot status and holdfastd snapshot restore.",
	  .examples = "holdfastctl snapshot save /var/backups/cell-$(date +%F).backup" },

	{ .name = "version", .usage = "", .min = 0, .max = 0, .function = command_version,
	  .summary = "the version of holdfastctl, and of the API it speaks",
	  .text = "Asks nobody.",
	  .examples = "holdfastctl version" },
	{ .name = "help", .usage = "[COMMAND]", .min = 0, .max = 2, .function = command_help,
	  .summary = "explain a command, or list them all",
	  .text = "The same as COMMAND --help.",
	  .examples = "holdfastctl help lock\n"
		      "holdfastctl help lease" },
};
const int commands_len = sizeof(commands) / sizeof(commands[0]);
