/* SPDX-License-Identifier: BSD-3-Clause */
/* oneCCL on the processor, as one of those that are compared: built against its own wheel. */
#include "bench/peer.h"

#include <oneapi/ccl.hpp>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <unistd.h>

static std::unique_ptr<ccl::communicator> comm;
static ccl::shared_ptr_class<ccl::kvs> store;

/* Rank 0's store has an address, which the others read from a file. */
static void open_comm(const struct peer_place *place)
{
	std::string path = std::string(place->folder) + "/store";
	ccl::kvs::address_type address;

	ccl::init();
	if (place->rank == 0) {
		store = ccl::create_main_kvs();
		address = store->get_address();
		std::ofstream(path + ".new", std::ios::binary)
			.write(address.data(), address.size());
		if (rename((path + ".new").c_str(), path.c_str()))
			peer_die("a note for the other ranks");
	} else {
		while (access(path.c_str(), R_OK))
			usleep(10000);
		std::ifstream(path, std::ios::binary).read(address.data(), address.size());
		store = ccl::create_kvs(address);
	}
	comm = std::make_unique<ccl::communicator>(
		ccl::create_communicator(place->ranks, place->rank, store));
}

static void allreduce(const struct peer_call *call)
{
	static const ccl::datatype dtypes[] = {ccl::datatype::float32, ccl::datatype::bfloat16,
					       ccl::datatype::float16};

	ccl::allreduce(call->send, call->recv, call->count, dtypes[call->dtype],
		       ccl::reduction::sum, *comm)
		.wait();
}

static void close_comm(void)
{
	comm.reset();
	store.reset();
}

const struct peer peer = {
	"oneccl",  "",        nullptr,             /* set */
	open_comm, allreduce, close_comm, nullptr, /* winner */
	nullptr,                                   /* memory */
	nullptr,   false,
};
