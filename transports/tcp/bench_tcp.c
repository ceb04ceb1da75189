/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A ring of processes on loopback that moves an allreduce's bytes, once through the tcp transport
 * and once through bare sockets: the same folding, the same buffer, interleaved in one run.
 *
 *   bench_tcp [-n RANKS] [-b BYTES] [-s SEGMENT] [-r RECEIVE BUFFER] [-i ROUNDS] [-f] [-p]
 *
 * -f: do not fold; -p: poll instead of sleeping. In both, whatever has been received and folded may
 * be sent on at once: the bare ring byte by byte, the transport segment by segment. So the ratio
 * shows what segments, events and system calls cost.
 */
#include "transports/transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 16, ROUNDS_MAX = 1000 };

struct rf_transport_peer {
	int rank;
};

static int ranks = 2, rounds = 30;
static size_t bytes = 16 << 20, segment_bytes = 512 << 10, buffer_bytes;
static bool folding = true, spinning;

/* Between the processes. */
static struct shared {
	atomic_int arrived, generation;
	_Atomic uint16_t ports[2][RANKS_MAX];
} * shared;

struct ring {
	int rank;
	float *elements;
	size_t chunk, total; /* bytes of a chunk, and of all that is sent or received */
	size_t sent, received;
	/* bare */
	int to, from;
	uint8_t *buffer;
	/* transport */
	struct rf_net *net;
	struct rf_transport *transport;
	struct rf_endpoint *endpoint;
	struct rf_transport_peer next, previous;
	size_t posted; /* bytes handed to send(): `sent` are those that are free again */
	bool refused;
	size_t arriving; /* where the segment that arrives belongs, and in what mode */
	uint64_t events, calls;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void check(bool good, const char *what)
{
	if (!good)
		die(what);
}

static void barrier(void)
{
	int generation = atomic_load(&shared->generation);

	if (atomic_fetch_add(&shared->arrived, 1) == ranks - 1) {
		atomic_store(&shared->arrived, 0);
		atomic_store(&shared->generation, generation + 1);
		return;
	}
	while (atomic_load(&shared->generation) == generation)
		sched_yield();
}

static double now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));

static void fold(uint8_t *into, const uint8_t *from, size_t count)
{
	floats *a = (floats *)(void *)into;
	const floats *b = (const floats *)(const void *)from;

	if (!folding)
		return;
	for (size_t i = 0; i < count / sizeof(floats); i++)
		a[i] += b[i];
	for (size_t i = count & ~(sizeof(floats) - 1); i < count; i += 4)
		*(float *)(void *)(into + i) += *(const float *)(const void *)(from + i);
}

/* Position in the stream of all that a rank sends -> its memory: chunk rank, rank-1, ... */
static uint8_t *send_address(const struct ring *ring, size_t position)
{
	size_t step = position / ring->chunk;
	size_t chunk = ((size_t)ring->rank + 2 * (size_t)ranks - step) % (size_t)ranks;

	return (uint8_t *)ring->elements + chunk * ring->chunk + position % ring->chunk;
}

static uint8_t *receive_address(const struct ring *ring, size_t position)
{
	return send_address(ring, position + ring->chunk);
}

static bool is_folded(const struct ring *ring, size_t position)
{
	return position < (size_t)(ranks - 1) * ring->chunk;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* ---- bare ---- */

static bool bare_send(struct ring *ring)
{
	size_t ready = least(ring->received + ring->chunk, ring->total) - ring->sent;
	size_t most = least(ready, ring->chunk - ring->sent % ring->chunk);
	ssize_t n;

	if (!most)
		return false;
	ring->calls++;
	n = send(ring->to, send_address(ring, ring->sent), most, MSG_DONTWAIT | MSG_NOSIGNAL);
	check(n > 0 || errno == EAGAIN, "send");
	ring->sent += n > 0 ? (size_t)n : 0;
	return n == (ssize_t)most;
}

static bool bare_receive(struct ring *ring, size_t *kept)
{
	size_t most = ring->chunk - (ring->received + *kept) % ring->chunk;
	bool folded = is_folded(ring, ring->received);
	size_t whole;
	ssize_t n;

	if (ring->received == ring->total)
		return false;
	ring->calls++;
	if (!folded) {
		n = recv(ring->from, receive_address(ring, ring->received), most, MSG_DONTWAIT);
		check(n > 0 || errno == EAGAIN, "recv");
		ring->received += n > 0 ? (size_t)n : 0;
		return n > 0;
	}
	n = recv(ring->from, ring->buffer + *kept, least(most, buffer_bytes - *kept), MSG_DONTWAIT);
	check(n > 0 || errno == EAGAIN, "recv");
	if (n <= 0)
		return false;
	*kept += (size_t)n;
	whole = *kept & ~(size_t)63;
	fold(receive_address(ring, ring->received), ring->buffer, whole);
	memmove(ring->buffer, ring->buffer + whole, *kept - whole);
	*kept -= whole;
	ring->received += whole;
	return true;
}

static void bare_round(struct ring *ring)
{
	size_t kept = 0;

	ring->sent = ring->received = 0;
	while (ring->sent < ring->total || ring->received < ring->total) {
		bool sent = bare_send(ring), received = bare_receive(ring, &kept);
		struct pollfd fds[2] = {{ring->from, POLLIN, 0}, {ring->to, POLLOUT, 0}};
		bool wants = ring->sent < least(ring->received + ring->chunk, ring->total);

		if (!sent && !received)
			poll(fds, wants ? 2 : 1, spinning ? 0 : -1);
	}
}

static int listen_on(uint16_t *port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	check(fd >= 0 && !bind(fd, (struct sockaddr *)&addr, length) && !listen(fd, 8), "listen");
	getsockname(fd, (struct sockaddr *)&addr, &length);
	*port = ntohs(addr.sin_port);
	return fd;
}

static void bare_connect(struct ring *ring)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	uint16_t port;
	int listener = listen_on(&port), one = 1;

	atomic_store(&shared->ports[0][ring->rank], port);
	barrier();
	addr.sin_port = htons(atomic_load(&shared->ports[0][(ring->rank + 1) % ranks]));
	ring->to = socket(AF_INET, SOCK_STREAM, 0);
	check(!connect(ring->to, (struct sockaddr *)&addr, sizeof(addr)), "connect");
	ring->from = accept(listener, NULL, NULL);
	check(ring->from >= 0, "accept");
	setsockopt(ring->to, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(listener);
}

/* ---- transport ---- */

static void transport_connect(struct ring *ring)
{
	struct rf_addr addr = {.family = 4, .ip = {127, 0, 0, 1}};
	struct rf_transport_env env = {.receive_buffer_bytes = buffer_bytes};
	const struct rf_transport_ops *ops = &rf_transport_tcp;
	struct rf_stream *to, *from;
	struct rf_listener *listener;
	uint16_t port;

	check(rf_net_posix_create(&ring->net) == RF_OK, "net");
	env.net = ring->net;
	check(ops->create(&env, &ring->transport) == RF_OK, "create");
	check(ring->net->ops->listen(ring->net, 0, 0, &listener, &port) == RF_OK, "listen");
	atomic_store(&shared->ports[1][ring->rank], port);
	barrier();
	addr.port = atomic_load(&shared->ports[1][(ring->rank + 1) % ranks]);
	check(ring->net->ops->connect(ring->net, &addr, NULL, &to) == RF_OK, "connect");
	while (to->ops->connected(to) == RF_ERR_AGAIN)
		sched_yield();
	while (ring->net->ops->accept(listener, NULL, &from) == RF_ERR_AGAIN)
		sched_yield();
	check(ops->open(ring->transport, &ring->next, NULL, 0, &ring->endpoint) == RF_OK, "open");
	check(ops->attach(ring->endpoint, 0, to) == RF_OK, "attach");
	check(ops->accept(ring->transport, &ring->previous, 0, from) == RF_OK, "accept");
	ring->net->ops->close_listener(listener);
	barrier();
}

static void transport_send(struct ring *ring)
{
	while (!ring->refused && ring->posted < ring->total) {
		size_t size = least(segment_bytes, ring->chunk - ring->posted % ring->chunk);
		struct rf_transport_send send = {.payload = send_address(ring, ring->posted),
						 .bytes = size,
						 .cookie = ring->posted};
		const struct rf_segment segment = {.version = RF_WIRE_VERSION,
						   .type = RF_SEGMENT_DATA,
						   .seq = ring->posted,
						   .bytes = (uint32_t)size};
		int status;

		if (ring->posted + size > ring->received + ring->chunk)
			return;
		rf_segment_encode(&segment, send.header);
		status = rf_transport_tcp.send(ring->endpoint, &send);
		if (status == RF_ERR_AGAIN) {
			ring->refused = true;
			return;
		}
		ring->posted += size;
		if (status == RF_SENT_AT_ONCE)
			ring->sent += size;
	}
}

static void transport_event(struct ring *ring, const struct rf_transport_event *event)
{
	const struct rf_transport_ops *ops = &rf_transport_tcp;

	ring->events++;
	switch (event->kind) {
	case RF_EVENT_SEGMENT:
		if (is_folded(ring, ring->received))
			ops->receive_pieces(event->receive);
		else
			ops->receive_into(event->receive, receive_address(ring, ring->received));
		break;
	case RF_EVENT_PIECE:
		fold(receive_address(ring, ring->received) + event->offset, event->piece,
		     event->bytes);
		ops->release(event->receive);
		break;
	case RF_EVENT_DELIVERED:
		ring->received += event->receive->bytes;
		break;
	case RF_EVENT_SENT:
		ring->sent += least(segment_bytes, ring->chunk - event->cookie % ring->chunk);
		ring->refused = false;
		break;
	case RF_EVENT_WRITABLE:
		ring->refused = false;
		break;
	case RF_EVENT_DOWN:
		fprintf(stderr, "down: %s\n", event->reason);
		exit(1);
	}
}

static void transport_round(struct ring *ring)
{
	const struct rf_transport_ops *ops = &rf_transport_tcp;
	struct rf_transport_event event;
	struct rf_net_event ready[16];
	int count;

	ring->sent = ring->posted = ring->received = 0;
	for (;;) {
		transport_send(ring);
		if (ring->sent == ring->total && ring->received == ring->total)
			return;
		if (ops->poll(ring->transport, &event) == RF_OK) {
			transport_event(ring, &event);
			continue;
		}
		if (ops->arm(ring->transport) != RF_OK)
			continue;
		ring->calls++;
		if (ring->net->ops->poll(ring->net, false, spinning ? 0 : UINT64_MAX, ready, 16,
					 &count) == RF_OK)
			rf_net_dispatch(ring->net, ready, count);
	}
}

/* ---- runs ---- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void start_values(struct ring *ring)
{
	for (size_t i = 0; i < bytes / 4; i++)
		ring->elements[i] = (float)(ring->rank + 1);
}

static void check_values(const struct ring *ring, const char *which)
{
	for (size_t i = 0; folding && i < bytes / 4; i++)
		if (ring->elements[i] != (float)(ranks * (ranks + 1) / 2)) {
			fprintf(stderr, "%s: element %zu is %g\n", which, i, ring->elements[i]);
			exit(1);
		}
}

static void run(struct ring *ring)
{
	static double times[2][ROUNDS_MAX], cpu[2][ROUNDS_MAX];
	uint64_t calls[2] = {0};

	for (int i = 0; i < 2 * rounds; i++) {
		bool transport = i & 1;
		double start, cpu_start;

		start_values(ring);
		ring->calls = 0;
		barrier();
		start = now(CLOCK_MONOTONIC);
		cpu_start = now(CLOCK_PROCESS_CPUTIME_ID);
		if (transport)
			transport_round(ring);
		else
			bare_round(ring);
		cpu[transport][i / 2] = now(CLOCK_PROCESS_CPUTIME_ID) - cpu_start;
		barrier();
		times[transport][i / 2] = now(CLOCK_MONOTONIC) - start;
		calls[transport] += ring->calls;
		check_values(ring, transport ? "transport" : "bare");
	}
	if (ring->rank)
		return;
	for (int i = 0; i < 2; i++) {
		qsort(times[i], (size_t)rounds, sizeof(double), by_value);
		qsort(cpu[i], (size_t)rounds, sizeof(double), by_value);
	}
	printf("%d ranks, %zu bytes, segments of %zu, buffer %zu\n"
	       "  bare      %6.0f us, best %6.0f, cpu %6.0f, %llu calls\n"
	       "  transport %6.0f us, best %6.0f, cpu %6.0f, %llu waits, %llu events\n"
	       "  ratio     %.3f       best %.3f  cpu %.3f\n",
	       ranks, bytes, segment_bytes, buffer_bytes, times[0][rounds / 2] * 1e6,
	       times[0][0] * 1e6, cpu[0][rounds / 2] * 1e6,
	       (unsigned long long)calls[0] / (unsigned)rounds, times[1][rounds / 2] * 1e6,
	       times[1][0] * 1e6, cpu[1][rounds / 2] * 1e6,
	       (unsigned long long)calls[1] / (unsigned)rounds,
	       (unsigned long long)ring->events / (unsigned)rounds,
	       times[0][rounds / 2] / times[1][rounds / 2], times[0][0] / times[1][0],
	       cpu[0][rounds / 2] / cpu[1][rounds / 2]);
}

static void start_rank(int rank)
{
	struct ring ring = {.rank = rank};

	ring.chunk = bytes / (size_t)ranks;
	ring.total = 2 * (size_t)(ranks - 1) * ring.chunk;
	ring.elements = aligned_alloc(4096, bytes);
	ring.buffer = aligned_alloc(4096, buffer_bytes);
	check(ring.elements && ring.buffer, "memory");
	bare_connect(&ring);
	transport_connect(&ring);
	run(&ring);
}

static void options(int argc, char **argv)
{
	int option;

	buffer_bytes = 256 << 10;
	while ((option = getopt(argc, argv, "n:b:s:r:i:fp")) != -1)
		switch (option) {
		case 'n':
			ranks = atoi(optarg);
			break;
		case 'b':
			bytes = strtoull(optarg, NULL, 0);
			break;
		case 's':
			segment_bytes = strtoull(optarg, NULL, 0);
			break;
		case 'r':
			buffer_bytes = strtoull(optarg, NULL, 0);
			break;
		case 'i':
			rounds = atoi(optarg);
			break;
		case 'f':
			folding = false;
			break;
		case 'p':
			spinning = true;
			break;
		default:
			exit(2);
		}
	check(ranks >= 2 && ranks <= RANKS_MAX && rounds > 0 && rounds <= ROUNDS_MAX, "options");
	/* Whole cache lines in every chunk, whole pages in all. */
	bytes -= bytes % ((size_t)ranks * 4096);
}

int main(int argc, char **argv)
{
	options(argc, argv);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	check(shared != MAP_FAILED, "mmap");
	for (int rank = 1; rank < ranks; rank++)
		if (!fork()) {
			start_rank(rank);
			return 0;
		}
	start_rank(0);
	while (wait(NULL) > 0)
		;
	return 0;
}
