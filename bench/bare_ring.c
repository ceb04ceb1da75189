/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A ring of processes joined by plain TCP streams, which moves an allreduce's bytes and folds them:
 * what such a program can do at best, and the bound for the library. It has nothing that the
 * library must have: no headers, no credit, no deadlines, no deaths, one call at a time.
 *
 * Whatever has been received and folded may be sent on at once, byte by byte. Both directions are
 * driven by one non-blocking loop that reads at most half an L2 cache at a time, folds it while it
 * is there, and sleeps in poll() only when neither direction has anything to do; where every rank
 * has a core it spins a little before. Folding is done by the library's own fp32 kernel, so that
 * the ratio of the two tells of nothing else. Without folding (fold=0) bytes land at their final
 * place and nothing is summed: what the streams themselves carry.
 *
 * Small arrays go round whole, ranks - 1 hops instead of twice as many.
 */
#include "bench/peer.h"
#include "engine/kernels/kernels.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
	"  fold=0      move the bytes, sum nothing\n"
	"  read=BYTES  read at once while folding (262144)\n"
	"  write=BYTES written at once (1048576)\n"
	"  socket=BYTES  socket buffers (0: the system's, which grow by themselves)\n"
	"  small=BYTES arrays up to this go round whole (16384)\n"
	"  spin=US     spin before sleeping, where every rank has a core (50)\n";

static struct {
	size_t fold, read, write, socket, small, spin;
} settings = {.fold = 1, .read = 256 << 10, .write = 1 << 20, .small = 16 << 10, .spin = 50};

/* Where one direction is: which block of the 2 * (ranks - 1), and the byte in it. */
struct position {
	int step;
	size_t offset;
};

struct ring {
	int rank, ranks;
	int to, from;
	bool spins;
	uint8_t *buffer;
	size_t kept; /* bytes in the buffer that are not folded yet: a part of an element */
	uint8_t *values;
	size_t count;
	struct position sent, received;
};
static struct ring ring;

static bool set(const char *name, const char *value)
{
	static const struct {
		const char *name;
		size_t *value;
	} list[] = {
		{"fold", &settings.fold},   {"read", &settings.read},
		{"write", &settings.write}, {"socket", &settings.socket},
		{"small", &settings.small}, {"spin", &settings.spin},
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (!strcmp(list[i].name, name)) {
			*list[i].value = strtoull(value, NULL, 0);
			return true;
		}
	return false;
}

/* ---- blocks --------------------------------------------------------------------------------- */

static size_t block_start(int block)
{
	return ring.count * (size_t)block / (size_t)ring.ranks * sizeof(float);
}

static int block_of(int step, int behind)
{
	return (ring.rank - behind - step + 3 * ring.ranks) % ring.ranks;
}

static size_t block_bytes(int block)
{
	return block_start(block + 1) - block_start(block);
}

static int steps(void)
{
	return 2 * (ring.ranks - 1);
}

/* A direction goes on to its next block, past those that are empty. */
static void settle(struct position *at, int behind)
{
	while (at->step < steps() && at->offset == block_bytes(block_of(at->step, behind))) {
		at->step++;
		at->offset = 0;
	}
}

/* Bytes that may be sent now: of the first block all, of the others what has been received. */
static size_t ready_to_send(void)
{
	const struct position *sent = &ring.sent;

	if (sent->step == steps())
		return 0;
	if (sent->step == 0 || ring.received.step > sent->step - 1)
		return block_bytes(block_of(sent->step, 0)) - sent->offset;
	if (ring.received.step == sent->step - 1)
		return ring.received.offset - sent->offset;
	return 0;
}

/* ---- moving --------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Bytes moved; 0: it would have to wait. */
static size_t moved(ssize_t n, const char *what)
{
	if (n > 0)
		return (size_t)n;
	if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
		peer_die(n ? what : "a neighbour has gone");
	return 0;
}

static size_t send_some(const void *bytes, size_t count)
{
	return moved(send(ring.to, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL), "send");
}

static size_t receive_some(void *bytes, size_t count)
{
	return moved(recv(ring.from, bytes, count, MSG_DONTWAIT), "recv");
}

static void add(uint8_t *into, const uint8_t *from, size_t bytes)
{
	rf_fold2(RF_SUM, RF_FLOAT32, into, RF_FLOAT32, into, RF_FLOAT32, from,
		 bytes / sizeof(float));
}

static bool send_on(void)
{
	size_t ready = least(ready_to_send(), settings.write), n;

	if (!ready)
		return false;
	n = send_some(ring.values + block_start(block_of(ring.sent.step, 0)) + ring.sent.offset,
		      ready);
	ring.sent.offset += n;
	settle(&ring.sent, 0);
	return n > 0;
}

static bool receive_on(void)
{
	struct position *at = &ring.received;
	int block = block_of(at->step, 1);
	uint8_t *place = ring.values + block_start(block) + at->offset;
	size_t rest, whole, n;

	if (at->step == steps())
		return false;
	rest = block_bytes(block) - at->offset;
	if (!settings.fold || at->step >= ring.ranks - 1) {
		n = receive_some(place, least(rest, settings.write));
		at->offset += n;
		settle(at, 1);
		return n > 0;
	}
	n = receive_some(ring.buffer + ring.kept, least(rest, settings.read) - ring.kept);
	ring.kept += n;
	whole = ring.kept & ~(sizeof(float) - 1);
	add(place, ring.buffer, whole);
	memmove(ring.buffer, ring.buffer + whole, ring.kept - whole);
	ring.kept -= whole;
	at->offset += whole;
	settle(at, 1);
	return n > 0;
}

static uint64_t now_us(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (uint64_t)at.tv_sec * 1000000u + (uint64_t)at.tv_nsec / 1000u;
}

/* Spins that ended in a sleep, in a row; and waits since then. Ranks that share a core, because
 * others are busy on the other one, had better not spin. */
enum { SPIN_FAILURES = 2, SPIN_AGAIN = 64 };
static unsigned spins_failed, spins_left_out;

static bool may_spin(void)
{
	return ring.spins && (spins_failed < SPIN_FAILURES || spins_left_out >= SPIN_AGAIN);
}

static void has_moved(uint64_t *since)
{
	if (*since) {
		spins_failed = 0;
		spins_left_out = 0;
	}
	*since = 0;
}

/* Called when nothing moved; *since: when it began to spin, or 0. */
static void wait_for(bool receives, bool sends, uint64_t *since)
{
	struct pollfd fds[2] = {{ring.from, receives ? POLLIN : 0, 0},
				{ring.to, sends ? POLLOUT : 0, 0}};

	if (may_spin()) {
		uint64_t now = now_us();

		if (!*since)
			*since = now;
		if (now - *since < settings.spin)
			return;
		spins_failed++;
		spins_left_out = 0;
	}
	spins_left_out++;
	poll(fds, 2, -1);
	*since = 0;
}

static void round_in_blocks(void)
{
	uint64_t idle_since = 0;

	ring.sent = ring.received = (struct position){0, 0};
	settle(&ring.sent, 0);
	settle(&ring.received, 1);
	while (ring.sent.step < steps() || ring.received.step < steps()) {
		bool moves = send_on();

		moves |= receive_on();
		if (moves)
			has_moved(&idle_since);
		else
			wait_for(ring.received.step<steps(), ready_to_send()> 0, &idle_since);
	}
}

/* Everybody's array goes round whole; buffer: what is passed on, and what comes. */
static void round_whole(void)
{
	size_t bytes = ring.count * sizeof(float);
	uint8_t *passed = ring.buffer, *coming = ring.buffer + settings.small;

	memcpy(passed, ring.values, bytes);
	for (int hop = 1; hop < ring.ranks; hop++) {
		size_t sent = 0, received = 0;
		uint64_t idle_since = 0;
		uint8_t *swap = passed;

		while (sent < bytes || received < bytes) {
			size_t out = sent < bytes ? send_some(passed + sent, bytes - sent) : 0;
			size_t in = received < bytes
					    ? receive_some(coming + received, bytes - received)
					    : 0;

			sent += out;
			received += in;
			if (out + in)
				has_moved(&idle_since);
			else
				wait_for(received < bytes, sent < bytes, &idle_since);
		}
		if (settings.fold)
			add(ring.values, coming, bytes);
		else if (hop == ring.rank)
			memcpy(ring.values, coming, bytes);
		passed = coming;
		coming = swap;
	}
}

static void allreduce(const struct peer_call *call)
{
	ring.values = call->recv;
	ring.count = call->count;
	if (call->count * sizeof(float) <= settings.small)
		round_whole();
	else
		round_in_blocks();
}

static int winner(size_t index, size_t count)
{
	if (settings.fold)
		return -1;
	if (count * sizeof(float) <= settings.small)
		return 0;
	ring.count = count;
	for (int block = 0;; block++)
		if (index * sizeof(float) < block_start(block + 1))
			return block;
}

/* ---- connecting ----------------------------------------------------------------------------- */

static void tune(int fd)
{
	int one = 1, bytes = (int)settings.socket;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (!bytes)
		return;
	/* Past the system's limit where we may. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

static void leave_note(const char *folder, int rank, unsigned port)
{
	char path[512], hidden[520];
	FILE *note;

	snprintf(path, sizeof(path), "%s/port.%d", folder, rank);
	snprintf(hidden, sizeof(hidden), "%s.new", path);
	note = fopen(hidden, "w");
	if (!note || fprintf(note, "%u\n", port) < 0 || fclose(note) || rename(hidden, path))
		peer_die("a note for the neighbour");
}

static uint16_t read_note(const char *folder, int rank)
{
	char path[512];
	unsigned port = 0;
	FILE *note;

	snprintf(path, sizeof(path), "%s/port.%d", folder, rank);
	for (int tries = 0; tries < 60000; tries++) {
		note = fopen(path, "r");
		if (note) {
			if (fscanf(note, "%u", &port) != 1)
				peer_die("the neighbour's note");
			fclose(note);
			return (uint16_t)port;
		}
		usleep(1000);
	}
	peer_die("the neighbour has not come");
}

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons(port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void open_ring(const struct peer_place *place)
{
	struct sockaddr_in address = loopback(0);
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	cpu_set_t cores;

	ring.rank = place->rank;
	ring.ranks = place->ranks;
	CPU_ZERO(&cores);
	sched_getaffinity(0, sizeof(cores), &cores);
	ring.spins = settings.spin && CPU_COUNT(&cores) >= ring.ranks;
	ring.buffer =
		aligned_alloc(4096, (settings.read + 2 * settings.small + 8191) & ~(size_t)4095);
	if (!ring.buffer || !place->folder)
		peer_die(place->folder ? "memory" : "PEER_FOLDER is not set");
	tune(listener);
	if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 4) ||
	    getsockname(listener, (struct sockaddr *)&address, &length))
		peer_die("listen");
	leave_note(place->folder, ring.rank, ntohs(address.sin_port));
	address = loopback(read_note(place->folder, (ring.rank + 1) % ring.ranks));
	ring.to = socket(AF_INET, SOCK_STREAM, 0);
	tune(ring.to);
	if (connect(ring.to, (struct sockaddr *)&address, sizeof(address)))
		peer_die("connect");
	ring.from = accept(listener, NULL, NULL);
	if (ring.from < 0)
		peer_die("accept");
	tune(ring.from);
	close(listener);
}

static void close_ring(void)
{
	close(ring.to);
	close(ring.from);
	free(ring.buffer);
}

const struct peer peer = {.name = "bare",
			  .help = help,
			  .set = set,
			  .open = open_ring,
			  .allreduce = allreduce,
			  .close = close_ring,
			  .winner = winner,
			  .only_plain = true};
