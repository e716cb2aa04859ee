// Client for the streaming endpoints of a kubelet, as kubectl uses them, and a gRPC health server for probes.
//
//	client exec    [flags] URL        URL: https://HOST:PORT/exec/NAMESPACE/POD/CONTAINER?command=…
//	client attach  [flags] URL
//	client forward [flags] URL PORT   listens on a free port, prints it, forwards until stdin ends
//	client health  PORT               serves grpc.health.v1
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

var (
	protocol = flag.String("protocol", "spdy", "spdy or websocket")
	stdin    = flag.Bool("i", false, "pass on standard input")
	tty      = flag.Bool("t", false, "request a terminal")
	sizes    = flag.String("sizes", "", "sizes of the terminal and their times: 24x80@0s,50x132@1s")
	limit    = flag.Duration("limit", time.Minute, "time limit")
)

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: client exec|attach|forward|health …"))
	}
	verb := os.Args[1]
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	var err error
	switch verb {
	case "exec", "attach":
		err = stream(ctx, flag.Arg(0))
	case "forward":
		err = forward(flag.Arg(0), flag.Arg(1))
	case "health":
		err = serveHealth(flag.Arg(0))
	default:
		err = fmt.Errorf("unknown verb %s", verb)
	}
	var status exec.CodeExitError
	if errors.As(err, &status) {
		os.Exit(status.Code)
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "client:", err)
	os.Exit(125)
}

func config() *rest.Config {
	return &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func stream(ctx context.Context, address string) error {
	target, err := url.Parse(address)
	if err != nil {
		return err
	}
	query := target.Query()
	options := remotecommand.StreamOptions{Stdout: os.Stdout, Tty: *tty}
	query.Set("output", "1")
	if *stdin {
		query.Set("input", "1")
		options.Stdin = os.Stdin
	}
	if *tty {
		query.Set("tty", "1")
	} else {
		query.Set("error", "1")
		options.Stderr = os.Stderr
	}
	if *sizes != "" {
		if options.TerminalSizeQueue, err = parseSizes(*sizes); err != nil {
			return err
		}
	}
	target.RawQuery = query.Encode()
	var executor remotecommand.Executor
	if *protocol == "websocket" {
		executor, err = remotecommand.NewWebSocketExecutor(config(), http.MethodGet, target.String())
	} else {
		executor, err = remotecommand.NewSPDYExecutor(config(), http.MethodPost, target)
	}
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, options)
}

// sizeQueue returns each size at its time, and then blocks.
type sizeQueue struct {
	begin time.Time
	rest  []sizeAt
}

type sizeAt struct {
	after time.Duration
	size  remotecommand.TerminalSize
}

func parseSizes(text string) (*sizeQueue, error) {
	queue := &sizeQueue{begin: time.Now()}
	for _, word := range strings.Split(text, ",") {
		var rows, columns uint16
		size, at, _ := strings.Cut(word, "@")
		if _, err := fmt.Sscanf(size, "%dx%d", &rows, &columns); err != nil {
			return nil, fmt.Errorf("size %q: %w", size, err)
		}
		after, err := time.ParseDuration(at)
		if err != nil {
			return nil, err
		}
		queue.rest = append(queue.rest, sizeAt{after, remotecommand.TerminalSize{Width: columns, Height: rows}})
	}
	return queue, nil
}

func (q *sizeQueue) Next() *remotecommand.TerminalSize {
	if len(q.rest) == 0 {
		select {} // the terminal keeps its size until the process exits
	}
	next := q.rest[0]
	q.rest = q.rest[1:]
	time.Sleep(time.Until(q.begin.Add(next.after)))
	return &next.size
}

func forward(address, port string) error {
	target, err := url.Parse(address)
	if err != nil {
		return err
	}
	dialer, err := dialerTo(target)
	if err != nil {
		return err
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:" + port}, stop, ready, io.Discard, os.Stderr)
	if err != nil {
		return err
	}
	go func() {
		<-ready
		ports, err := forwarder.GetPorts()
		if err != nil {
			fail(err)
		}
		fmt.Println(ports[0].Local)
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	return forwarder.ForwardPorts()
}

func dialerTo(target *url.URL) (httpstream.Dialer, error) {
	if *protocol == "websocket" {
		return portforward.NewSPDYOverWebsocketDialer(target, config())
	}
	transport, upgrader, err := spdy.RoundTripperFor(config())
	if err != nil {
		return nil, err
	}
	return spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target), nil
}

func serveHealth(port string) error {
	if _, err := strconv.Atoi(port); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	server, checks := grpc.NewServer(), health.NewServer()
	checks.SetServingStatus("ready", grpc_health_v1.HealthCheckResponse_SERVING)
	checks.SetServingStatus("sick", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	grpc_health_v1.RegisterHealthServer(server, checks)
	return server.Serve(listener)
}
