#include <string.h>
#include <tutti/trainer.h>

int main(void) {
    tutti_trainer* trainer = NULL;
    tutti_parallelize_spec spec = TUTTI_PARALLELIZE_INIT;
    if (tutti_parallelize(&spec, &trainer) != TUTTI_ERR_INVALID) return 1;
    return strstr(tutti_trainer_last_error(), "devices") == NULL;
}
