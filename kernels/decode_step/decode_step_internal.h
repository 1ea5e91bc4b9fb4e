/* decode_step_internal.h -- how steps with picked ids are launched, for measurements. Included inside extern "C". */
#pragma once
#include "kernels/decode_step/decode_step.h"

/* Early: the step's blocks start, and load weights, while the pick before it still runs. LATE: after it. COOPERATIVE:
 * as a cooperative launch; ALONE: as an ordinary one. */
enum decode_step_early { DECODE_STEP_LATE, DECODE_STEP_EARLY_COOPERATIVE, DECODE_STEP_EARLY_ALONE };
void decode_step_set_early(struct decode_step_weights *w, enum decode_step_early early);
