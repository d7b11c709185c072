package main

import (
	"bufio"
	"fmt"
	"math/rand"
	"os"
	"sync"
	"sync/atomic"
	"time"

	v3lockpb "go.etcd.io/etcd/etcdserver/api/v3lock/v3lockpb"
	pb "go.etcd.io/etcd/etcdserver/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// atRate starts f -rate times a second for -dur seconds, whether earlier calls have ended or not, and waits for all.
func atRate(f func(i int)) (calls int, seconds float64) {
	var wg sync.WaitGroup
	began := time.Now()
	for ; time.Since(began).Seconds() < *dur; calls++ {
		due := began.Add(time.Duration(float64(calls) / *rate * 1e9))
		if d := time.Until(due); d > time.Millisecond {
			time.Sleep(d)
		}
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			f(i)
		}(calls)
	}
	seconds = time.Since(began).Seconds()
	wg.Wait()
	return
}

// writes puts -size bytes into random ones of -n keys.
func writes() {
	cs := dialAll(*conns)
	value := make([]byte, *size)
	lat := &latencies{}
	var refused, failed int64
	calls, seconds := atRate(func(i int) {
		began := time.Now()
		c, cancel := grpcTimeout(10 * time.Second)
		defer cancel()
		_, err := pb.NewKVClient(cs[i%len(cs)]).Put(c, &pb.PutRequest{Key: []byte(fmt.Sprintf("%s/%08d", *prefix, rand.Intn(*n))), Value: value})
		switch {
		case err == nil:
			lat.add(time.Since(began))
		case status.Code(err) == codes.ResourceExhausted:
			atomic.AddInt64(&refused, 1)
		default:
			atomic.AddInt64(&failed, 1)
		}
	})
	m := map[string]interface{}{"kind": "writes", "rate": float64(calls) / seconds, "refused": refused, "failed": failed}
	lat.take(m, "write")
	tell(m)
}

// acquires takes locks of names of its own and gives them back.
func acquires() {
	cs := dialAll(*conns)
	leases := make([]int64, len(cs))
	for i := range cs {
		err := insist(cs, i, func(c *grpc.ClientConn) error {
			r, err := pb.NewLeaseClient(c).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 600})
			if err == nil {
				leases[i] = r.ID
			}
			return err
		})
		if err != nil {
			die("grant: %v", err)
		}
	}
	lat := &latencies{}
	var failed int64
	calls, seconds := atRate(func(i int) {
		lock := v3lockpb.NewLockClient(cs[i%len(cs)])
		c, cancel := grpcTimeout(10 * time.Second)
		defer cancel()
		began := time.Now()
		r, err := lock.Lock(c, &v3lockpb.LockRequest{Name: []byte(fmt.Sprintf("%s/acquire/%08d", *prefix, i)), Lease: leases[i%len(cs)]})
		if err != nil {
			atomic.AddInt64(&failed, 1)
			return
		}
		lat.add(time.Since(began))
		if _, err = lock.Unlock(c, &v3lockpb.UnlockRequest{Key: r.Key}); err != nil {
			atomic.AddInt64(&failed, 1)
		}
	})
	m := map[string]interface{}{"kind": "acquires", "rate": float64(calls) / seconds, "failed": failed}
	lat.take(m, "acquire")
	tell(m)
}

// flood keeps -outstanding transactions of -ops puts under way on each connection, far more than can be served. Who is refused asks again after 100 ms.
func flood() {
	cs := dialAll(*conns)
	value := make([]byte, *size)
	over := time.Now().Add(time.Duration(*dur * 1e9))
	var ok, refused, failed int64
	lat := &latencies{}
	var wg sync.WaitGroup
	for i := 0; i < *conns**outstanding; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			kv := pb.NewKVClient(cs[i%len(cs)])
			var puts []*pb.RequestOp
			for k := 0; k < *ops; k++ {
				put := &pb.PutRequest{Key: []byte(fmt.Sprintf("%s/%d/%d", *prefix, i, k)), Value: value}
				puts = append(puts, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
			}
			for time.Now().Before(over) {
				began := time.Now()
				c, cancel := grpcTimeout(20 * time.Second)
				_, err := kv.Txn(c, &pb.TxnRequest{Success: puts})
				cancel()
				switch {
				case err == nil:
					atomic.AddInt64(&ok, 1)
					lat.add(time.Since(began))
				case status.Code(err) == codes.ResourceExhausted:
					atomic.AddInt64(&refused, 1)
					time.Sleep(100 * time.Millisecond)
				default:
					atomic.AddInt64(&failed, 1)
				}
			}
		}(i)
	}
	wg.Wait()
	m := map[string]interface{}{"kind": "flood", "ok": ok, "refused": refused, "failed": failed}
	lat.take(m, "put")
	tell(m)
}

type holding struct {
	lease int64
	key   []byte
}

// hold takes so many locks, with a lease each.
func hold(c *grpc.ClientConn, n int) []holding {
	held := make([]holding, n)
	parallel(n, func(i int) {
		lease, err := pb.NewLeaseClient(c).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 600})
		if err != nil {
			die("grant: %v", err)
		}
		r, err := v3lockpb.NewLockClient(c).Lock(ctx, &v3lockpb.LockRequest{Name: []byte(fmt.Sprintf("%s/flood/%d/%d", *prefix, os.Getpid(), i)), Lease: lease.ID})
		if err != nil {
			die("lock: %v", err)
		}
		held[i] = holding{lease.ID, r.Key}
	})
	return held
}

// frees takes locks and leases, says so, waits for a line, and then for -dur seconds gives ten locks a second back and ends as many leases, one at a time. A process of its own,
// beside a flood: in that one's it would wait for the flood's own work.
func frees() {
	c := dialAll(1)[0]
	held := hold(c, int(*dur*20))
	tell(map[string]interface{}{"kind": "held", "n": len(held)})
	bufio.NewReader(os.Stdin).ReadString('\n')
	over := time.Now().Add(time.Duration(*dur * 1e9))
	unlock, revoke := &latencies{}, &latencies{}
	lease, lock := pb.NewLeaseClient(c), v3lockpb.NewLockClient(c)
	for i := 0; i+1 < len(held) && time.Now().Before(over); i += 2 {
		began := time.Now()
		if _, err := lock.Unlock(ctx, &v3lockpb.UnlockRequest{Key: held[i].key}); err != nil {
			die("unlock: %v", err)
		}
		unlock.add(time.Since(began))
		began = time.Now()
		if _, err := lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: held[i+1].lease}); err != nil {
			die("revoke: %v", err)
		}
		revoke.add(time.Since(began))
		time.Sleep(100 * time.Millisecond)
	}
	m := map[string]interface{}{"kind": "frees"}
	unlock.take(m, "unlock")
	revoke.take(m, "revoke")
	tell(m)
}
