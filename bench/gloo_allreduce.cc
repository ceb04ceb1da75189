/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Gloo C++ library, over its TCP transport on loopback, as one of those that are compared: the
 * call that torch makes (gloo::allreduce with its default algorithm), without torch around it.
 */
#include "bench/peer.h"

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <memory>

const char *const peer_name = "gloo";
const char *const peer_help = "  algorithm=ring or bcube (the library's default)\n";

static gloo::AllreduceOptions::Algorithm algorithm = gloo::AllreduceOptions::Algorithm::UNSPECIFIED;
static std::shared_ptr<gloo::rendezvous::Context> context;
static uint32_t tag;

bool peer_set(const char *name, const char *value)
{
	if (std::string(name) != "algorithm")
		return false;
	algorithm = std::string(value) == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
						  : gloo::AllreduceOptions::Algorithm::RING;
	return true;
}

void peer_open(const struct peer_place *place)
{
	gloo::transport::tcp::attr attr;

	attr.iface = "lo";
	auto device = gloo::transport::tcp::CreateDevice(attr);
	gloo::rendezvous::FileStore store(place->folder);

	context = std::make_shared<gloo::rendezvous::Context>(place->rank, place->ranks);
	context->setTimeout(std::chrono::seconds(60));
	context->connectFullMesh(store, device);
}

void peer_allreduce(float *values, size_t count)
{
	gloo::AllreduceOptions options(context);

	options.setOutput(values, count);
	options.setAlgorithm(algorithm);
	options.setReduceFunction([](void *to, const void *a, const void *b, size_t n) {
		gloo::sum<float>(to, a, b, n);
	});
	options.setTag(tag++);
	gloo::allreduce(options);
}

int peer_winner(size_t, size_t)
{
	return -1;
}

void peer_close(void)
{
	context.reset();
}
