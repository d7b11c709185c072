package main

import (
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	"go.etcd.io/etcd/etcdserver/api/v3rpc/rpctypes"
)

// kv: every option that the client has for reads and writes, checked here.
func kv(c *clientv3.Client, _ []string) {
	for i := 0; i < 5; i++ {
		_, err := c.Put(ctx, fmt.Sprintf("k/%d", i), fmt.Sprint(9-i))
		must(err)
	}
	get, err := c.Get(ctx, "k/", clientv3.WithPrefix(), clientv3.WithLimit(2))
	must(err)
	demand(len(get.Kvs) == 2 && get.More && get.Count == 5, "%v", get)
	get, err = c.Get(ctx, "k/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend), clientv3.WithLimit(1))
	must(err)
	demand(string(get.Kvs[0].Key) == "k/4", "%v", get)
	get, err = c.Get(ctx, "k/", clientv3.WithLastRev()...)
	must(err)
	demand(string(get.Kvs[0].Key) == "k/4", "%v", get)
	last := get.Header.Revision
	get, err = c.Get(ctx, "k/3", clientv3.WithFromKey(), clientv3.WithKeysOnly(), clientv3.WithSerializable())
	must(err)
	demand(len(get.Kvs) == 2 && len(get.Kvs[0].Value) == 0, "%v", get)
	get, err = c.Get(ctx, "k/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(err)
	demand(get.Count == 5 && len(get.Kvs) == 0, "%v", get)
	get, err = c.Get(ctx, "k/", clientv3.WithPrefix(), clientv3.WithMinModRev(last-1), clientv3.WithMaxCreateRev(last-1))
	must(err)
	demand(len(get.Kvs) == 1 && string(get.Kvs[0].Key) == "k/3", "%v", get)

	txn, err := c.Txn(ctx).If(clientv3.Compare(clientv3.Value("k/0"), "=", "9"), clientv3.Compare(clientv3.Version("k/"), "<", 2).WithPrefix(),
		clientv3.Compare(clientv3.LeaseValue("k/0"), "=", 0)).
		Then(clientv3.OpPut("k/0", "txn", clientv3.WithPrevKV()), clientv3.OpDelete("k/1", clientv3.WithPrevKV()), clientv3.OpGet("k/", clientv3.WithPrefix()),
			clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("nested"), "=", 0)}, []clientv3.Op{clientv3.OpPut("nested", "then")}, nil)).
		Else(clientv3.OpGet("k/0")).Commit()
	must(err)
	demand(txn.Succeeded && string(txn.Responses[0].GetResponsePut().PrevKv.Value) == "9" && len(txn.Responses[1].GetResponseDeleteRange().PrevKvs) == 1 &&
		txn.Responses[2].GetResponseRange().Count == 4 && txn.Responses[3].GetResponseTxn().Succeeded, "%v", txn)
	get, err = c.Get(ctx, "k/", clientv3.WithPrefix(), clientv3.WithRev(last))
	must(err)
	demand(get.Count == 5 && string(get.Kvs[0].Value) == "9", "%v", get)

	_, err = c.Put(ctx, "", "")
	demand(err == rpctypes.ErrEmptyKey, "%v", err)
	_, err = c.Put(ctx, "x", "", clientv3.WithLease(12345))
	demand(err == rpctypes.ErrLeaseNotFound, "%v", err)
	_, err = c.Get(ctx, "k/0", clientv3.WithRev(last+1000))
	demand(err == rpctypes.ErrFutureRev, "%v", err)
	_, err = c.Compact(ctx, last, clientv3.WithCompactPhysical())
	must(err)
	_, err = c.Get(ctx, "k/0", clientv3.WithRev(last-1))
	demand(err == rpctypes.ErrCompacted, "%v", err)
	_, err = c.Txn(ctx).Then(clientv3.OpPut("twice", "1"), clientv3.OpPut("twice", "2")).Commit()
	demand(err == rpctypes.ErrDuplicateKey, "%v", err)

	lease, err := c.Grant(ctx, 60)
	must(err)
	_, err = c.Put(ctx, "leased", "1", clientv3.WithLease(lease.ID))
	must(err)
	ttl, err := c.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	must(err)
	demand(ttl.GrantedTTL == 60 && ttl.TTL > 55 && len(ttl.Keys) == 1, "%v", ttl)
	once, err := c.KeepAliveOnce(ctx, lease.ID)
	must(err)
	demand(once.TTL == 60, "%v", once)
	leases, err := c.Leases(ctx)
	must(err)
	demand(len(leases.Leases) == 1 && leases.Leases[0].ID == lease.ID, "%v", leases)
	_, err = c.Revoke(ctx, lease.ID)
	must(err)
	_, err = c.KeepAliveOnce(ctx, lease.ID)
	demand(err == rpctypes.ErrLeaseNotFound, "%v", err)

	members, err := c.MemberList(ctx)
	must(err)
	for _, m := range members.Members {
		status, err := c.Status(ctx, m.ClientURLs[0])
		must(err)
		demand(status.Header.MemberId == m.ID && status.Leader != 0, "%v", status)
	}
	say("kv fine, %d members", len(members.Members))
}

// stm: money moves between accounts at every level of isolation that forbids losing any; none is made or lost.
func stm(c *clientv3.Client, _ []string) {
	const accounts, movers, moves = 5, 6, 12
	for i := 0; i < accounts; i++ {
		_, err := c.Put(ctx, fmt.Sprintf("account/%d", i), "100")
		must(err)
	}
	begin := time.Now()
	var all sync.WaitGroup
	for m := 0; m < movers; m++ {
		all.Add(1)
		go func(m int) {
			defer all.Done()
			levels := []concurrency.Isolation{concurrency.SerializableSnapshot, concurrency.Serializable, concurrency.RepeatableReads}
			for i := 0; i < moves; i++ {
				from, to := fmt.Sprintf("account/%d", (m+i)%accounts), fmt.Sprintf("account/%d", (m+2*i+1)%accounts)
				if from == to {
					continue
				}
				_, err := concurrency.NewSTM(c, func(s concurrency.STM) error {
					a, b := number(s.Get(from)), number(s.Get(to))
					s.Put(from, fmt.Sprint(a-7))
					s.Put(to, fmt.Sprint(b+7))
					return nil
				}, concurrency.WithIsolation(levels[i%len(levels)]))
				must(err)
			}
		}(m)
	}
	all.Wait()
	get, err := c.Get(ctx, "account/", clientv3.WithPrefix())
	must(err)
	sum := int64(0)
	for _, kv := range get.Kvs {
		sum += number(string(kv.Value))
	}
	demand(sum == 100*accounts, "the accounts hold %d", sum)
	say("stm fine, %d moves in %v", movers*moves, time.Since(begin))
}
