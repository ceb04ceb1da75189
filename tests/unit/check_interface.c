/* SPDX-License-Identifier: BSD-3-Clause */
/* RINGFOLD_INTERFACE chooses what it says, in its order, and says what there is if that is none. */
#include "engine/interface.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static struct rf_interface all[8];
static int failures;

static void add(int at, const char *name, const char *address)
{
	struct rf_addr *addr = &all[at].addr;

	snprintf(all[at].name, sizeof(all[at].name), "%s", name);
	addr->family = strchr(address, ':') ? 6 : 4;
	if (inet_pton(addr->family == 6 ? AF_INET6 : AF_INET, address, addr->ip) != 1)
		failures++;
}

/* The chosen ones, by name and last byte: "eth0/7 ib0/9". */
static void expect(const char *wanted, const char *expected)
{
	struct rf_interface_choice choices[8];
	char message[RF_INTERFACE_MESSAGE], got[512] = "";
	int status = rf_interfaces_choose(wanted, all, 8, choices, message);

	for (int i = 0; i < 8 && status == RF_OK && choices[i].chosen; i++) {
		const struct rf_interface *one = &choices[i].interface;
		const size_t used = strlen(got);

		snprintf(got + used, sizeof(got) - used, "%s%.15s/%d", i ? " " : "", one->name,
			 one->addr.ip[one->addr.family == 6 ? 15 : 3]);
	}
	if (status != RF_OK)
		snprintf(got, sizeof(got), "%s", "refused");
	if (strcmp(got, expected)) {
		fprintf(stderr, "check_interface: \"%s\" chooses \"%s\", not \"%s\" (%s)\n", wanted,
			got, expected, message);
		failures++;
	}
	if (status != RF_OK && (!strstr(message, wanted) || !strstr(message, "eth0 10.1.0.7") ||
				!strstr(message, "[fd00::8]"))) {
		fprintf(stderr, "check_interface: \"%s\" does not say what there is\n", message);
		failures++;
	}
}

int main(void)
{
	add(0, "eth0", "10.1.0.7");
	add(1, "eth0", "fd00::8");
	add(2, "eth1", "10.2.0.9");
	add(3, "eth1.100", "10.3.0.10");
	add(4, "docker0", "172.17.0.1");
	add(5, "eth0", "fe80::5");
	add(6, "lo", "127.0.0.1");
	add(7, "lo", "::1");

	expect("", "eth0/7 eth0/8 eth1/9 eth1.100/10 docker0/1");
	expect("eth0", "eth0/7 eth0/8 eth0/5");
	expect("eth1", "eth1/9 eth1.100/10");
	expect("=eth1", "eth1/9");
	expect("=eth1.100", "eth1.100/10");
	expect("eth", "eth0/7 eth0/8 eth1/9 eth1.100/10 eth0/5");
	expect("docker0,=eth1", "docker0/1 eth1/9");
	expect("wire7,docker", "docker0/1");
	expect("^docker0", "eth0/7 eth0/8 eth1/9 eth1.100/10");
	expect("^docker,=eth1,10.3.0.0/16,lo", "eth0/7 eth0/8");
	expect("10.2.0.9", "eth1/9");
	expect("10.0.0.0/14", "eth0/7 eth1/9 eth1.100/10");
	expect("10.2.0.0/15", "eth1/9 eth1.100/10");
	expect("fd00::/8", "eth0/8");
	expect("fd00::8", "eth0/8");
	expect("::1", "lo/1");
	expect("lo", "lo/1 lo/1");
	expect("0.0.0.0/0", "eth0/7 eth1/9 eth1.100/10 docker0/1 lo/1");

	expect("wire7", "refused");
	expect("10.1.0.8", "refused");
	expect("=eth", "refused");
	expect("10.1.0.0/33", "refused");
	expect("fd00::/129", "refused");
	expect("10.1.0.0/", "refused");
	expect("10.1.0.0/x", "refused");
	expect("eth0/8", "refused");
	expect("eth0,,eth1", "refused");
	expect("=", "refused");
	expect("^", "refused");
	expect("^eth,docker", "refused");
	return failures != 0;
}
