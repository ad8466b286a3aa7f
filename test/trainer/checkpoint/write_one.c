/* Writes a checkpoint for layout_test.py to the path it is given, and with a number behind it that
 * many more, each with its number as "epoch". C, as a framework might. */
#include <stdio.h>
#include <stdlib.h>

#include "tutti/checkpoint.h"

static int failed(tutti_status status) {
    if (status == TUTTI_OK) return 0;
    fprintf(stderr, "%s\n", tutti_trainer_last_error());
    return 1;
}

static int add_all(tutti_checkpoint* list, float* weight, double* size, int64_t* iteration) {
    const int64_t matrix[2] = {2, 3}, vector[1] = {2}, empty[2] = {3, 0};
    const char* const name = "device_0/fc/weight";
    return failed(tutti_checkpoint_add(list, name, weight, TUTTI_FLOAT32, 2, matrix)) ||
           failed(tutti_checkpoint_add(list, "größe", size, TUTTI_FLOAT64, 1, vector)) ||
           failed(tutti_checkpoint_add(list, "iteration", iteration, TUTTI_INT64, 0, NULL)) ||
           failed(tutti_checkpoint_add(list, "mask", NULL, TUTTI_UINT8, 2, empty)) ||
           failed(tutti_checkpoint_set_text(list, "epoch", "3"));
}

int main(int argc, char** argv) {
    float weight[6];
    double size[2] = {1e300, -0.25};
    int64_t iteration = -7;
    const int more = argc > 2 ? atoi(argv[2]) : 0;
    tutti_checkpoint* list = NULL;
    if (argc < 2) return 2;
    for (int i = 0; i < 6; ++i) weight[i] = 0.5F * (float)i;
    int bad = failed(tutti_checkpoint_create(&list)) || add_all(list, weight, size, &iteration) ||
              failed(tutti_checkpoint_save(list, NULL, argv[1]));
    if (!bad) puts("saved");
    fflush(stdout);
    for (int i = 0; i < more && !bad; ++i) {
        char epoch[16];
        snprintf(epoch, sizeof epoch, "%d", i);
        bad = failed(tutti_checkpoint_set_text(list, "epoch", epoch)) ||
              failed(tutti_checkpoint_save(list, NULL, argv[1]));
    }
    tutti_checkpoint_destroy(list);
    return bad;
}
