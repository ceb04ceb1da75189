/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which of this host's addresses are told to the other ranks: what RINGFOLD_INTERFACE chooses.
 *
 * A list such as "eth0,ib": each item is the beginning of an interface's name ("=eth0": the whole
 * name), an address ("10.1.0.7", "fd00::7") or a network ("10.1.0.0/16"), in the order in which
 * they are preferred. "^docker,lo" is all but those. Empty: all.
 */
#ifndef RF_INTERFACE_H
#define RF_INTERFACE_H

#include "engine/net.h"

enum { RF_INTERFACES_MOST = 128, RF_INTERFACE_WHY = 96, RF_INTERFACE_MESSAGE = 512 };

struct rf_interface_choice {
	struct rf_interface interface;
	bool chosen;
	char why[RF_INTERFACE_WHY];
};

/*
 * All interfaces of a host, the chosen ones first and best first, and why. RF_ERR_CONFIG: nothing
 * is chosen by what was wanted, or it is no such list; message says what there is.
 */
int rf_interfaces_choose(const char *wanted, const struct rf_interface *all, int count,
			 struct rf_interface_choice *choices, char message[RF_INTERFACE_MESSAGE]);

#endif
