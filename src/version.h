/* SPDX-License-Identifier: Apache-2.0 */
/* The version, in this one place. */
#ifndef UNDERSPAN_VERSION_H
#define UNDERSPAN_VERSION_H

#define UNDERSPAN_VERSION "0.1.0"

#endif
