package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

func open(c *clientv3.Client, ttl int) *concurrency.Session {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(ttl))
	must(err)
	return s
}

// session TTL: says its lease, and when it is over.
func session(c *clientv3.Client, args []string) {
	s := open(c, int(number(args[0])))
	say("session %x", s.Lease())
	<-s.Done()
	say("done")
}

// mutex NAME: the recipe's lock; a line on standard input unlocks.
func mutex(c *clientv3.Client, args []string) {
	s := open(c, 10)
	m := concurrency.NewMutex(s, args[0])
	must(m.Lock(ctx))
	get, err := c.Get(ctx, m.Key())
	must(err)
	demand(len(get.Kvs) == 1, "success, but the key is gone")
	txn, err := c.Txn(ctx).If(m.IsOwner()).Commit()
	must(err)
	demand(txn.Succeeded, "not the owner")
	say("held %d %s", get.Kvs[0].CreateRevision, m.Key())
	awaitWord()
	must(m.Unlock(ctx))
	must(s.Close())
	say("released")
}

// elect NAME VALUE: the recipe's campaign; "proclaim VALUE" and then any other line on standard input, which resigns.
func elect(c *clientv3.Client, args []string) {
	s := open(c, 10)
	e := concurrency.NewElection(s, args[0])
	must(e.Campaign(ctx, args[1]))
	leader, err := e.Leader(ctx)
	must(err)
	demand(string(leader.Kvs[0].Key) == e.Key() && string(leader.Kvs[0].Value) == args[1], "elected, but %v leads", leader.Kvs)
	say("held %d %s", e.Rev(), e.Key())
	for {
		var value string
		word := awaitWord()
		if n, _ := fmt.Sscanf(word, "proclaim %s", &value); n != 1 {
			break
		}
		must(e.Proclaim(ctx, value))
		say("proclaimed")
	}
	must(e.Resign(ctx))
	must(s.Close())
	say("released")
}

// observe NAME: says each leader and each of its values.
func observe(c *clientv3.Client, args []string) {
	e := concurrency.NewElection(open(c, 10), args[0])
	say("observing")
	for r := range e.Observe(ctx) {
		say("leader %s %s", r.Kvs[0].Key, r.Kvs[0].Value)
	}
	say("over")
}

// turns NAME COUNTER BOOK: one of several who add to a counter under a mutex, by a read and a write that would lose additions if two did so at once. BOOK is a
// file that all write to: `in NAME` when the lock is held, `out NAME` before it is given back. Says `turn N` for an addition that was acknowledged, `unsure N`
// for one whose answer did not come. Ends when BOOK.end is there.
func turns(c *clientv3.Client, args []string) {
	name, counter, book := args[0], args[1], args[2]
	file, err := os.OpenFile(book, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0600)
	must(err)
	s := open(c, 20)
	m := concurrency.NewMutex(s, "lock of "+counter)
	for {
		if _, err := os.Stat(book + ".end"); err == nil {
			break
		}
		insist(func() error { return m.Lock(ctx) })
		fmt.Fprintf(file, "in %s\n", name)
		value := int64(1)
		insist(func() error {
			get, err := c.Get(ctx, counter)
			if err == nil && len(get.Kvs) > 0 {
				value = number(strings.Fields(string(get.Kvs[0].Value))[0]) + 1
			}
			return err
		})
		put, err := c.Txn(ctx).If(m.IsOwner()).Then(clientv3.OpPut(counter, fmt.Sprintf("%d %s", value, name))).Commit()
		if err == nil {
			demand(put.Succeeded, "the lock was lost")
			say("turn %d", value)
		} else {
			say("unsure %d", value)
		}
		fmt.Fprintf(file, "out %s\n", name)
		insist(func() error { return m.Unlock(ctx) })
	}
	must(s.Close())
}

// insist is for what may be repeated while the cell is between leaders.
func insist(f func() error) {
	for f() != nil {
		time.Sleep(20 * time.Millisecond)
	}
}
