package main

import (
	"fmt"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/etcdserver/api/v3rpc/rpctypes"
)

func sayEvents(wr clientv3.WatchResponse) {
	for _, e := range wr.Events {
		say("%s %s %s at %d", e.Type, e.Kv.Key, e.Kv.Value, e.Kv.ModRevision)
	}
}

// watch PREFIX REVISION: says every event; the client resumes by itself wherever it finds a replica.
func watch(c *clientv3.Client, args []string) {
	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCreatedNotify()}
	if rev := number(args[1]); rev > 0 {
		options = append(options, clientv3.WithRev(rev))
	}
	for wr := range c.Watch(clientv3.WithRequireLeader(ctx), args[0], options...) {
		if wr.Created {
			say("watching")
		}
		sayEvents(wr)
		if wr.Err() != nil {
			say("ended: %v", wr.Err())
		}
	}
	say("over")
}

// forms: what a watch may be asked for, checked here.
func watchForms(c *clientv3.Client, _ []string) {
	first, err := c.Put(ctx, "w/a", "1")
	must(err)
	_, err = c.Put(ctx, "w/b", "1")
	must(err)
	_, err = c.Delete(ctx, "w/a")
	must(err)

	next := func(ch clientv3.WatchChan) clientv3.WatchResponse {
		select {
		case wr := <-ch:
			return wr
		case <-time.After(10 * time.Second):
			say("broken: no event")
			panic("no event")
		}
	}
	// Several watches, one stream; the first has ID 0.
	history := c.Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithRev(first.Header.Revision), clientv3.WithPrevKV())
	deletes := c.Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithRev(first.Header.Revision), clientv3.WithFilterPut())
	puts := c.Watch(ctx, "w/a", clientv3.WithRev(first.Header.Revision), clientv3.WithFilterDelete())
	fromB := c.Watch(ctx, "w/b", clientv3.WithFromKey(), clientv3.WithRev(first.Header.Revision))
	seen := 0
	for seen < 3 {
		for _, e := range next(history).Events {
			seen++
			demand(e.Type == clientv3.EventTypePut || string(e.PrevKv.Value) == "1", "%v", e)
		}
	}
	e := next(deletes).Events[0]
	demand(e.Type == clientv3.EventTypeDelete && string(e.Kv.Key) == "w/a", "%v", e)
	e = next(puts).Events[0]
	demand(e.Type == clientv3.EventTypePut && string(e.Kv.Key) == "w/a", "%v", e)
	e = next(fromB).Events[0]
	demand(string(e.Kv.Key) == "w/b", "%v", e)

	// A response larger than a message may be comes in fragments, or not at all for who does not allow them.
	ops := []clientv3.Op{}
	for i := 0; i < 100; i++ {
		ops = append(ops, clientv3.OpPut(fmt.Sprintf("big/%02d", i), string(make([]byte, 10*1024))))
	}
	big := c.Watch(ctx, "big/", clientv3.WithPrefix(), clientv3.WithFragment())
	for i := 0; i < 3; i++ {
		_, err = c.Txn(ctx).Then(ops...).Commit()
		must(err)
	}
	for n := 0; n < 300; {
		wr := next(big)
		must(wr.Err())
		n += len(wr.Events)
	}

	// Progress on request.
	must(c.RequestProgress(ctx))
	wr := next(history)
	demand(wr.IsProgressNotify() && wr.Header.Revision >= first.Header.Revision+2, "%v", wr)

	head, err := c.Put(ctx, "w/b", "2")
	must(err)
	_, err = c.Put(ctx, "w/b", "3")
	must(err)
	_, err = c.Compact(ctx, head.Header.Revision)
	must(err)
	wr = next(c.Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithRev(first.Header.Revision)))
	demand(wr.Err() == rpctypes.ErrCompacted && wr.CompactRevision == head.Header.Revision, "%v", wr)
	wr = next(c.Watch(ctx, "w/b", clientv3.WithRev(head.Header.Revision)))
	demand(wr.Err() == nil && len(wr.Events) > 0 && string(wr.Events[0].Kv.Value) == "2", "%v", wr)
	say("watch fine")
}

// keepalive TTL: a lease with a key, kept alive by the client; says every answer.
func keepAlive(c *clientv3.Client, args []string) {
	lease, err := c.Grant(ctx, number(args[0]))
	must(err)
	_, err = c.Put(ctx, "alive", "yes", clientv3.WithLease(lease.ID))
	must(err)
	say("lease %x", lease.ID)
	answers, err := c.KeepAlive(ctx, lease.ID)
	must(err)
	for a := range answers {
		say("alive %d", a.TTL)
	}
	say("lost")
}
