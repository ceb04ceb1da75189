/* SPDX-License-Identifier: BSD-3-Clause */
/* ringfold info: version, build, transports, kernels, and who a process would be here. */
#include "engine/config.h"
#include "engine/identity.h"
#include "engine/interface.h"
#include "engine/kernels/kernels.h"
#include "engine/net_posix.h"
#include "engine/segment.h"
#include "tools/info.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZER "address"
#elif defined(__SANITIZE_THREAD__)
#define SANITIZER "thread"
#else
#define SANITIZER ""
#endif

/* Clang says its name itself. */
#if defined(__clang__)
#define COMPILER __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

/* The words of RINGFOLD_TRANSPORT are the transports of this build, and "auto". */
static void each_transport(void (*visit)(const char *name, bool first))
{
	const char *words = "";
	bool first = true;

	for (size_t i = 0; i < rf_config_row_count; i++) {
		if (strcmp(rf_config_rows[i].variable, "RINGFOLD_TRANSPORT") == 0)
			words = rf_config_rows[i].choices;
	}
	while (*words) {
		const size_t length = strcspn(words, "|");
		char name[32];

		snprintf(name, sizeof(name), "%.*s", (int)length, words);
		if (strcmp(name, "auto") != 0) {
			visit(name, first);
			first = false;
		}
		words += length + (words[length] == '|');
	}
}

static void print_name(const char *name, bool first)
{
	printf("%s%s", first ? "" : ", ", name);
}

static void print_json_name(const char *name, bool first)
{
	printf("%s", first ? "" : ", ");
	tool_json_string(stdout, name);
}

static bool set_by_hand(void)
{
	const char *const name = getenv("RINGFOLD_ISA");

	return name && strcmp(name, rf_kernels_active()->name) == 0;
}

static const char *kernel_state(const struct rf_kernel_set *set)
{
	if (set == rf_kernels_active())
		return set_by_hand() ? " (in use, by RINGFOLD_ISA)" : " (in use)";
	return set->is_supported() ? "" : " (not on this processor)";
}

/* As for a communicator from the environment. False: it says nothing, or something wrong. */
static bool find_identity(struct rf_identity *identity, char message[RF_IDENTITY_TEXT])
{
	const struct rf_identity_options from_environment = {
		.rank = -1, .world_size = -1, .needs_master = true};

	memset(identity, 0, sizeof(*identity));
	return rf_identity_find(&from_environment, NULL, NULL, identity, message) == RF_OK;
}

static void print_identity(void)
{
	struct rf_identity identity;
	char message[RF_IDENTITY_TEXT];

	if (!find_identity(&identity, message)) {
		printf("identity      none: %s\n", message);
		return;
	}
	printf("identity      rank %d of %d (from %s)", identity.rank, identity.world_size,
	       identity.source);
	if (identity.master_addr[0])
		printf(", master %s port %d (from %s)", identity.master_addr, identity.master_port,
		       identity.master_source);
	printf("\n");
	if (identity.warning[0])
		printf("              %s\n", identity.warning);
}

static void json_pair(const char *key, const char *value)
{
	tool_json_string(stdout, key);
	fputs(": ", stdout);
	tool_json_string(stdout, value);
	fputs(",\n ", stdout);
}

/* Each interface of this host; the address without its port. False: RINGFOLD_INTERFACE chooses
 * none, and message says why. */
static bool each_interface(void (*visit)(const struct rf_interface_choice *choice,
					 const char *address, bool first),
			   char message[RF_INTERFACE_MESSAGE])
{
	static struct rf_interface all[RF_INTERFACES_MOST];
	static struct rf_interface_choice choices[RF_INTERFACES_MOST];
	const char *const wanted = getenv("RINGFOLD_INTERFACE");
	int count = 0;

	message[0] = '\0';
	if (posix_interfaces(NULL, all, RF_INTERFACES_MOST, &count) != RF_OK ||
	    rf_interfaces_choose(wanted ? wanted : "", all, count, choices, message) != RF_OK)
		return false;
	for (int i = 0; i < count; i++) {
		char text[RF_ADDR_TEXT];

		rf_addr_format(&choices[i].interface.addr, text);
		text[strlen(text) - 2] = '\0'; /* ":0" */
		visit(&choices[i], text, i == 0);
	}
	return true;
}

static void print_interface(const struct rf_interface_choice *choice, const char *address,
			    bool first)
{
	const char *told = "not told";

	if (choice->chosen && rf_addr_is_loopback(&choice->interface.addr))
		told = "told to the ranks of this host";
	else if (choice->chosen)
		told = "told to the other ranks";
	printf("%-12s  %s %s: %s, %s\n", first ? "interfaces" : "", choice->interface.name, address,
	       told, choice->why);
}

static void print_json_interface(const struct rf_interface_choice *choice, const char *address,
				 bool first)
{
	fputs(first ? "{" : ", {", stdout);
	json_pair("name", choice->interface.name);
	json_pair("address", address);
	json_pair("why", choice->why);
	printf("\"chosen\": %s}", choice->chosen ? "true" : "false");
}

static void print_text(const struct utsname *system)
{
	char message[RF_INTERFACE_MESSAGE];

	printf("ringfold %s, wire version %d\n", rf_version(), RF_WIRE_VERSION);
	printf("built by      %s%s%s\n", COMPILER, SANITIZER[0] ? ", sanitizer " : "", SANITIZER);
	printf("running on    %s %s, %s\n", system->sysname, system->release, system->machine);
	printf("transports    ");
	each_transport(print_name);
	printf("\nkernels       ");
	for (size_t i = 0; i < rf_kernel_set_count; i++)
		printf("%s%s%s", i ? ", " : "", rf_kernel_sets[i].name,
		       kernel_state(&rf_kernel_sets[i]));
	printf("\n");
	if (!each_interface(print_interface, message))
		printf("interfaces    none: %s\n", message);
	print_identity();
}

static void print_json_identity(void)
{
	struct rf_identity identity;
	char message[RF_IDENTITY_TEXT];

	if (!find_identity(&identity, message)) {
		fputs("{\"error\": ", stdout);
		tool_json_string(stdout, message);
		fputs("}", stdout);
		return;
	}
	printf("{\"rank\": %d, \"world_size\": %d, ", identity.rank, identity.world_size);
	json_pair("source", identity.source);
	json_pair("master_addr", identity.master_addr);
	json_pair("master_source", identity.master_source);
	json_pair("warning", identity.warning);
	printf("\"master_port\": %d}", identity.master_port);
}

static void print_json(const struct utsname *system)
{
	char message[RF_INTERFACE_MESSAGE];

	fputs("{", stdout);
	json_pair("version", rf_version());
	printf("\"wire_version\": %d,\n ", RF_WIRE_VERSION);
	json_pair("compiler", COMPILER);
	json_pair("sanitizer", SANITIZER);
	json_pair("system", system->sysname);
	json_pair("release", system->release);
	json_pair("machine", system->machine);
	fputs("\"transports\": [", stdout);
	each_transport(print_json_name);
	fputs("],\n \"kernels\": [", stdout);
	for (size_t i = 0; i < rf_kernel_set_count; i++) {
		const struct rf_kernel_set *const set = &rf_kernel_sets[i];

		printf("%s{\"name\": ", i ? ", " : "");
		tool_json_string(stdout, set->name);
		printf(", \"supported\": %s, \"active\": %s}",
		       set->is_supported() ? "true" : "false",
		       set == rf_kernels_active() ? "true" : "false");
	}
	fputs("],\n \"interfaces\": [", stdout);
	(void)each_interface(print_json_interface, message);
	fputs("],\n \"identity\": ", stdout);
	print_json_identity();
	puts("}");
}

static void pass_over(const struct rf_interface_choice *choice, const char *address, bool first)
{
	(void)choice, (void)address, (void)first;
}

static int failed(const char *message)
{
	fprintf(stderr, "ringfold info: %s\n", message);
	return TOOL_FAILED;
}

int info_overview(enum tool_format format)
{
	struct utsname system;
	struct rf_config config;
	char message[256], about_interfaces[RF_INTERFACE_MESSAGE];

	uname(&system);
	if (format == TOOL_JSON)
		print_json(&system);
	else
		print_text(&system);
	if (rf_config_load(&config, message) != RF_OK)
		return failed(message);
	return each_interface(pass_over, about_interfaces) ? TOOL_OK : failed(about_interfaces);
}
