package main

import (
	"fmt"
	"sync"
	"time"

	v3lockpb "go.etcd.io/etcd/etcdserver/api/v3lock/v3lockpb"
	pb "go.etcd.io/etcd/etcdserver/etcdserverpb"
	"google.golang.org/grpc"
)

func grant(cs []*grpc.ClientConn, at int) int64 {
	var id int64
	err := insist(cs, at, func(c *grpc.ClientConn) error {
		r, err := pb.NewLeaseClient(c).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: *ttl})
		if err == nil {
			id = r.ID
		}
		return err
	})
	if err != nil {
		die("grant: %v", err)
	}
	return id
}

// pairs takes and gives back -n locks, each of a name of its own, -clients at a time. It begins at a line of standard input, so that what it made ready is not
// measured with it.
func pairs() {
	cs := dialAll(*conns)
	leases := make([]int64, *clients)
	for i := range leases {
		leases[i] = grant(cs, i)
	}
	tell(map[string]interface{}{"kind": "ready"})
	words(func(string) {
		parallel(*n, func(i int) {
			lock := v3lockpb.NewLockClient(cs[i%len(cs)])
			r, err := lock.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(fmt.Sprintf("%s/%08d", *prefix, i)), Lease: leases[i%len(leases)]})
			if err != nil {
				die("lock: %v", err)
			}
			if _, err = lock.Unlock(ctx, &v3lockpb.UnlockRequest{Key: r.Key}); err != nil {
				die("unlock: %v", err)
			}
		})
		tell(map[string]interface{}{"kind": "pairs"})
	})
}

// queue has -n contenders wait for one lock, then lets it go from one to the next: each gives it back as soon as it has it. A hand-over is from when its holder
// sends the unlock until the next one has its answer.
func queue() {
	cs := dialAll(*conns)
	name := []byte(*prefix + "/one")
	first, err := v3lockpb.NewLockClient(cs[0]).Lock(ctx, &v3lockpb.LockRequest{Name: name, Lease: grant(cs, 0)})
	if err != nil {
		die("lock: %v", err)
	}
	leases := make([]int64, *n)
	parallel(*n, func(i int) { leases[i] = grant(cs, i) })
	var mu sync.Mutex
	var sent time.Time
	lat := &latencies{}
	release := func(key []byte) {
		mu.Lock()
		sent = time.Now()
		mu.Unlock()
		if _, err := v3lockpb.NewLockClient(cs[0]).Unlock(ctx, &v3lockpb.UnlockRequest{Key: key}); err != nil {
			die("unlock: %v", err)
		}
	}
	var wg sync.WaitGroup
	for i := range leases {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			r, err := v3lockpb.NewLockClient(cs[i%len(cs)]).Lock(ctx, &v3lockpb.LockRequest{Name: name, Lease: leases[i]})
			if err != nil {
				die("lock: %v", err)
			}
			mu.Lock()
			took := time.Since(sent)
			mu.Unlock()
			lat.add(took)
			release(r.Key)
		}(i)
	}
	inside := &pb.RangeRequest{Key: append(append([]byte{}, name...), '/'), RangeEnd: append(append([]byte{}, name...), '0'), CountOnly: true}
	for waiting := int64(0); waiting < int64(*n)+1; time.Sleep(20 * time.Millisecond) {
		r, err := pb.NewKVClient(cs[0]).Range(ctx, inside)
		if err != nil {
			die("count: %v", err)
		}
		waiting = r.Count
	}
	tell(map[string]interface{}{"kind": "queued", "n": *n})
	words(func(string) {
		release(first.Key)
		wg.Wait()
		m := map[string]interface{}{"kind": "queue"}
		lat.take(m, "handover")
		tell(m)
	})
}
