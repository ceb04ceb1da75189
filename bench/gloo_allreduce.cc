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
#include <stdexcept>

static gloo::AllreduceOptions::Algorithm algorithm = gloo::AllreduceOptions::Algorithm::UNSPECIFIED;
static std::shared_ptr<gloo::rendezvous::Context> context;
static uint32_t tag;

static bool set(const char *name, const char *value)
{
	if (std::string(name) != "algorithm")
		return false;
	algorithm = std::string(value) == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
						  : gloo::AllreduceOptions::Algorithm::RING;
	return true;
}

static void open_context(const struct peer_place *place)
{
	gloo::transport::tcp::attr attr;

	attr.iface = "lo";
	auto device = gloo::transport::tcp::CreateDevice(attr);
	gloo::rendezvous::FileStore store(place->folder);

	context = std::make_shared<gloo::rendezvous::Context>(place->rank, place->ranks);
	context->setTimeout(std::chrono::seconds(60));
	context->connectFullMesh(store, device);
}

static void allreduce(const struct peer_call *call)
{
	gloo::AllreduceOptions options(context);

	if (call->send != call->recv)
		options.setInput(static_cast<float *>(const_cast<void *>(call->send)), call->count);
	options.setOutput(static_cast<float *>(call->recv), call->count);
	if (call->dtype != PEER_FLOAT32)
		throw std::invalid_argument("float32 only");
	options.setAlgorithm(algorithm);
	options.setReduceFunction([](void *to, const void *a, const void *b, size_t n) {
		gloo::sum<float>(to, a, b, n);
	});
	options.setTag(tag++);
	gloo::allreduce(options);
}

static void close_context(void)
{
	context.reset();
}

const struct peer peer = {
	"gloo",    "  algorithm=ring or bcube (the library's default)\n",
	set,       open_context,
	allreduce, close_context,
	nullptr, /* winner */
	nullptr, /* memory */
	nullptr,   false,
};
