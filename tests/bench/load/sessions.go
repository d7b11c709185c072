package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"context"

	v3lockpb "go.etcd.io/etcd/etcdserver/api/v3lock/v3lockpb"
	pb "go.etcd.io/etcd/etcdserver/etcdserverpb"
	"google.golang.org/grpc"
)

func grpcTimeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

type held struct {
	ids                  []int64
	renewed, lost, broke int64
	answers              latencies
}

// sessions grants -n leases, has the first -locks of them take a lock each, and keeps all alive over -conns streams. A stream that breaks is opened anew at the
// next replica. "report": what has been answered since the last one, and how many were told to be gone, ever.
func sessions() {
	cs := dialAll(*conns)
	h := &held{ids: make([]int64, *n)}
	began := time.Now()
	parallel(*n, func(i int) {
		err := insist(cs, i, func(c *grpc.ClientConn) error {
			r, err := pb.NewLeaseClient(c).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: *ttl})
			if err == nil {
				h.ids[i] = r.ID
			}
			return err
		})
		if err != nil {
			die("grant: %v", err)
		}
	})
	granted := time.Since(began).Seconds()
	for i := 0; i < *conns; i++ {
		go h.keep(cs, i)
	}
	began = time.Now()
	parallel(*locks, func(i int) {
		err := insist(cs, i, func(c *grpc.ClientConn) error {
			_, err := v3lockpb.NewLockClient(c).Lock(ctx, &v3lockpb.LockRequest{Name: []byte(fmt.Sprintf("%s/lock/%06d", *prefix, i)), Lease: h.ids[i]})
			return err
		})
		if err != nil {
			die("lock: %v", err)
		}
	})
	tell(map[string]interface{}{"kind": "sessions", "granted": *n, "grant_seconds": granted, "locks": *locks, "lock_seconds": time.Since(began).Seconds()})
	words(func(word string) {
		m := map[string]interface{}{"renewed": atomic.SwapInt64(&h.renewed, 0), "lost": atomic.LoadInt64(&h.lost), "streams_broken": atomic.LoadInt64(&h.broke)}
		h.answers.take(m, "keepalive")
		tell(m)
	})
}

// keep is the at-th connection's share, spread evenly over each period.
func (h *held) keep(cs []*grpc.ClientConn, at int) {
	var mine []int64
	for i := at; i < len(h.ids); i += len(cs) {
		mine = append(mine, h.ids[i])
	}
	step := time.Duration(*every * 1e9 / float64(len(mine)))
	next := time.Now()
	for k, try := 0, 0; ; try++ {
		stream, err := pb.NewLeaseClient(cs[(at+try)%len(cs)]).LeaseKeepAlive(ctx)
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		over := make(chan bool)
		sent := make(chan time.Time, 1<<20)
		go h.receive(stream, sent, over)
		k, next = h.send(stream, mine, k, next, step, sent, over)
		atomic.AddInt64(&h.broke, 1)
		// What was on its way is not known to have been renewed: it goes first on the new stream.
		k -= len(sent)
		if k < 0 {
			k += len(mine)
		}
	}
}

func (h *held) send(stream pb.Lease_LeaseKeepAliveClient, mine []int64, k int, next time.Time, step time.Duration, sent chan time.Time, over chan bool) (int, time.Time) {
	for {
		if d := time.Until(next); d > time.Millisecond {
			select {
			case <-over:
				return k, next
			case <-time.After(d):
			}
		}
		next = next.Add(step)
		select {
		case <-over:
			return k, next
		default:
		}
		sent <- time.Now()
		if stream.Send(&pb.LeaseKeepAliveRequest{ID: mine[k%len(mine)]}) != nil {
			<-over
			return k, next
		}
		k++
	}
}

func (h *held) receive(stream pb.Lease_LeaseKeepAliveClient, sent chan time.Time, over chan bool) {
	for {
		r, err := stream.Recv()
		if err != nil {
			close(over)
			return
		}
		h.answers.add(time.Since(<-sent)) // answers come in the order of the requests
		if r.TTL <= 0 {
			atomic.AddInt64(&h.lost, 1)
		} else {
			atomic.AddInt64(&h.renewed, 1)
		}
	}
}
