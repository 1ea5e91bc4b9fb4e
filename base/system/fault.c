/* fault.c -- the shipped fault point, which does nothing. The file defines this symbol alone, so that a test's
 * definition (an object named on the link line) replaces it: the linker then never uses this member of the archive. */
#include "base/system/fault.h"

enum status fault_point(const char *name) {
    (void)name;
    return STATUS_OK;
}
