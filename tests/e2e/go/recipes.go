package main

import (
	"fmt"
	"sync"
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

// workers NAME COUNT TURNS: each adds one to a counter, under the mutex, by a read and a write that would lose additions if two did so at once. The
// write is guarded by the mutex's key. A session that is lost, or an answer that did not come, makes the worker begin its turn again.
func workers(c *clientv3.Client, args []string) {
	name, count, turns := args[0], int(number(args[1])), int(number(args[2]))
	var all sync.WaitGroup
	var mu sync.Mutex
	maybe, sure, inside := 0, 0, 0
	for w := 0; w < count; w++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for done := 0; done < turns; {
				s, err := concurrency.NewSession(c, concurrency.WithTTL(10))
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				m := concurrency.NewMutex(s, name)
				for done < turns && m.Lock(ctx) == nil {
					mu.Lock()
					inside++
					demand(inside == 1, "%d hold the lock", inside)
					mu.Unlock()
					value := int64(0)
					get, err := c.Get(ctx, "counter")
					if err == nil && len(get.Kvs) > 0 {
						value = number(string(get.Kvs[0].Value))
					}
					var put *clientv3.TxnResponse
					if err == nil {
						put, err = c.Txn(ctx).If(m.IsOwner()).Then(clientv3.OpPut("counter", fmt.Sprint(value+1))).Commit()
						if err == nil {
							demand(put.Succeeded, "the lock was lost")
						}
					}
					mu.Lock()
					inside--
					if err == nil {
						sure++
						done++
						say("turn %d", sure)
					} else {
						maybe++
					}
					mu.Unlock()
					if err != nil || m.Unlock(ctx) != nil {
						break
					}
				}
				s.Close()
			}
		}()
	}
	all.Wait()
	get, err := c.Get(ctx, "counter")
	must(err)
	say("counter %s sure %d maybe %d", get.Kvs[0].Value, sure, maybe)
}
