// A client in Go by Debian's clientv3 and its recipes, unchanged. `go-client ENDPOINTS STORY [ARGUMENT]...` says what happens, a line each.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/ioutil"
	"os"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.uber.org/zap"
	"google.golang.org/grpc/grpclog"
)

var stories = map[string]func(c *clientv3.Client, args []string){
	"kv":        kv,
	"stm":       stm,
	"watch":     watch,
	"keepalive": keepAlive,
	"session":   session,
	"mutex":     mutex,
	"elect":     elect,
	"observe":   observe,
	"turns":     turns,
	"forms":     watchForms,
}

var (
	ctx   = context.Background()
	stdin = bufio.NewReader(os.Stdin)
)

func say(format string, args ...interface{}) { fmt.Printf(format+"\n", args...) }

// must ends the process: the test sees the line and the status.
func must(err error) {
	if err != nil {
		say("error: %v", err)
		os.Exit(1)
	}
}

func demand(ok bool, format string, args ...interface{}) {
	if !ok {
		say("broken: "+format, args...)
		os.Exit(1)
	}
}

// awaitWord returns when a line arrives on standard input, or its end.
func awaitWord() string {
	line, _ := stdin.ReadString('\n')
	return strings.TrimSpace(line)
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	must(err)
	return n
}

// security is as the environment says; nil for plain connections.
func security() *tls.Config {
	file := os.Getenv("TEST_TLS_CA")
	if file == "" {
		return nil
	}
	ca, err := ioutil.ReadFile(file)
	must(err)
	cert, err := tls.LoadX509KeyPair(os.Getenv("TEST_TLS_CERT"), os.Getenv("TEST_TLS_KEY"))
	must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}
}

func main() {
	quiet := zap.NewProductionConfig()
	quiet.Level = zap.NewAtomicLevelAt(zap.FatalLevel)
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(ioutil.Discard, ioutil.Discard, ioutil.Discard))
	c, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Args[1], ","), DialTimeout: 5 * time.Second, TLS: security(),
		Username: os.Getenv("TEST_USER"), Password: os.Getenv("TEST_PASSWORD"), LogConfig: &quiet})
	must(err)
	defer c.Close()
	stories[os.Args[2]](c, os.Args[3:])
}
