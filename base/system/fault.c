/* fault.c -- the fault point of shipped programs, which does nothing. The file defines only this symbol. So if a test's
 * object on the link line defines it, the linker does not use this member of the archive. */
#include "base/system/fault.h"

enum status fault_point(const char *name) {
    (void)name;
    return STATUS_OK;
}
