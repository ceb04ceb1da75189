/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of ringfold info. Each returns an exit status. */
#ifndef RF_INFO_H
#define RF_INFO_H

#include "tools/table.h"

int info_overview(enum tool_format format);
int info_config(enum tool_format format);
int info_algorithms(enum tool_format format);
int info_scale(enum tool_format format, int ranks);

#endif
