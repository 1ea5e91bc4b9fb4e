# install.cmake -- what cmake --install and cpack put where
